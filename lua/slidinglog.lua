-- The twin of algo/rule/slidinglog.go, on the sorted set that people know: a
-- member a call, scored by its time. The member carries the sum of costs so
-- far, big-endian so that members of one instant sort by it, and its own
-- cost. Counting is a subtraction, and no call is ever a hundred members.
-- x is the newest entry's time, y the rank of the first that counts. sum is the sum of
-- all that was charged, hz the sum before the first that counts, v the newest.
-- Member: version, sum, cost; and where entries gave units back: mark, sum of all.
--
-- What entries gave back stands beside, since a sum that changed in the middle would
-- change all behind it. It is in a hash, as a tree over the sums as charged. A row has 32
-- places; those of level 0 stand for a sum each, those above for a row below. A place has
-- three bytes, and seven from level 5 on, where it stands for more than 2^24 units. A name
-- is level and number. Zeros at the end are left out. No entry of a sum above the mark, z,
-- gave back; it is 0 where nothing of the tree counts. So a log that never gave back costs
-- a take no command. An entry that gave all back leaves the set, and the sum of all stays:
-- so no two entries have one sum.
--
-- What is lent stands in a member of its own: see lent.lua. It is the last one of the
-- newest score, or of a later one, so a take that finds none reads as ever.

--@section view
-- Ranks as text: a number costs the server half a command to format.
local last, stale, older = try('ZRANGE', log, '-1', '-1', 'WITHSCORES'), nil, 0
if last[2] and #last[1] ~= 13 and string.byte(last[1]) == LENT then
  beside = last[1]
  if tonumber(last[2]) <= now - period then older = 1 end
  last = try('ZRANGE', log, '-2', '-2', 'WITHSCORES')
end
local e, what = last.err and last, 'ZRANGE'
if not e and last[2] then
  stale, what = try('ZCOUNT', log, '-inf', now - period), 'ZCOUNT'
  if type(stale) == 'table' then e = stale else stale = stale - older end
end
if e then
  --@include errors.failed
elseif last[2] then
  local newest = tonumber(last[2])
  if newest > now + period then ahead = true
  else
    local _, before, after, cost
    if #last[1] == 13 then _, after = parse('>Bd', last[1])
    elseif #last[1] == 29 then z, after = parse('>dd', last[1], 14)
    else status = CORRUPT end
    y = stale
    if status == 0 and newest > now - period then
      local first = try('ZRANGE', log, y > 0 and y or '0', y > 0 and y or '0')[1]
      if #first == 13 or #first == 29 then _, before, cost = parse('>BdI4', first) else status = CORRUPT end
      if status == 0 then used, x, v = after - before + cost, newest, last[1] end
      if x > now then at = x end
      hz = after - used
      if not (z >= 0 and z <= 9007199254740992 and z % 1 == 0 and hz >= 0) then status = CORRUPT
      elseif z > hz and status == 0 then
        if not (op == SETTLE and less) then -- which asks only whether anything counts
          local from = hz
          --@include slidinglog.back
          used = used - given
        end
      else z = 0 end
    else z = 0 end
    sum = after or 0
    if not (sum >= used and sum <= 9007199254740992 and used >= 0 and sum % 1 + used % 1 == 0 and newest % 1 == 0
      and string.byte(last[1]) == 1) then status = CORRUPT end
  end
end

--@section release
-- Every entry holds at least one unit, so the one sought is at most need - 1
-- behind the first. Where every cost is 1 the first probe finds it.
local card = need > had and 0 or try('ZCARD', log)
if need > had then leaves = at + period
elseif type(card) == 'table' then
  local e, what = card, 'ZCARD'
  --@include errors.failed
else
  --mutant:lua-lent-log-counted
  local lo, hi = y, card - (beside and beside.stored and 2 or 1)
  if y + need - 1 < hi then hi = y + need - 1 end
  -- What the entries behind one gave back is as if its sum were that much greater.
  local probe, goal = hi, sum - had + need
  while true do
    local e = try('ZRANGE', log, probe, probe, 'WITHSCORES')
    if lo > hi or #e[1] ~= 13 and #e[1] ~= 29 then status = CORRUPT break end
    local _, from, cost = parse('>BdI4', e[1])
    local after = from
    if z > from then
      --@include slidinglog.back
      after = from + given
    end
    if after < goal then lo = probe + 1
    elseif z == 0 and after - cost >= goal then hi = probe - 1
    elseif z > 0 and lo < probe then hi = probe
    else leaves = tonumber(e[2]) + period break end
    probe = math.floor((lo + hi) / 2)
  end
  if leaves and leaves % 1 ~= 0 then status = CORRUPT end
end

--@section take
-- The call is stored before anything is dropped: after a write that frees
-- memory Redis no longer refuses one that takes it. Only a log that lies too
-- far ahead of the clock goes first, and whole. The rights for the writes after
-- the first are asked for before it.
local lasts, joined, sets, e, what = at
if beside then
  --@include lent.joinlog
  --@include slidinglog.sets
end
local ms = math.ceil((lasts + period - now) / 1000) + slack
-- Where the view has found nothing, no key is there.
local left = sum == 0 and not ahead and not beside and -2 or try('PTTL', log)
if type(left) == 'table' then e, what = left, 'PTTL'
elseif left < ms and not may('PEXPIRE', log, ms) then what = 'PEXPIRE'
elseif y > 0 and not may('ZREMRANGEBYRANK', log, 0, 0) then what = 'ZREMRANGEBYRANK'
elseif beside and not may('ZREM', log, '') then what = 'ZREM'
elseif ahead then
  --@include kinds.ahead
end
if not what then
  if sets then e = sets[3] and try(unpack(sets)) or 0
  else e = try('ZADD', log, at, z > 0 and pack('>BdI4dd', 1, sum + taken, taken, z, sum + taken) or pack('>BdI4', 1, sum + taken, taken)) end
  if type(e) == 'table' then what = 'ZADD' end
end
if what then
  --@include errors.failed
else
  wrote = true
  if beside and beside.stored and beside.stored ~= joined then try('ZREM', log, beside.stored) end
  --mutant:bounded-pruning
  if y > 0 then try('ZREMRANGEBYRANK', log, 0, math.min(y, 128) - 1) end
  if left < ms then try('PEXPIRE', log, ms + math.ceil(period / 1000)) end
end

--@section sets
-- The loans that have ended are charged at their ends, and what is lent moves behind the
-- newest entry. sum is that of all, so it is the take's own last. A Borrow may charge none.
sets = {'ZADD', log}
local ended, after, form = beside.ended, sum - beside.folded, z > 0 and '>BdI4dd' or '>BdI4'
for i = 1, #ended, 2 do
  after = after + ended[i + 1]
  sets[#sets + 1] = ended[i]
  sets[#sets + 1] = pack(form, 1, after, ended[i + 1], z, after)
end
if taken > 0 then
  sets[#sets + 1] = at
  sets[#sets + 1] = pack(form, 1, sum + taken, taken, z, sum + taken)
end
if joined then
  sets[#sets + 1] = at
  sets[#sets + 1] = joined
end

--@section recall
local last, recalled = try('ZRANGE', log, '-1', '-1', 'WITHSCORES'), string.sub(beside.stored, 1, 20) .. due .. string.sub(beside.stored, 35)
if last[1] == beside.stored and type(try('ZADD', log, last[2], recalled)) == 'number' then
  try('ZREM', log, beside.stored)
  beside.stored = recalled
end

--@section relent
writes[#writes + 1] = {'ZADD', log, try('ZRANGE', log, '-1', '-1', 'WITHSCORES')[2], whole}
writes[#writes + 1] = {'ZREM', log, beside.stored}

--@section told
if taken > 0 then newest = at end

--@section rights
if not may('ZADD', log, 1, 'm') then what = 'ZADD' elseif not may('PEXPIRE', log, 1) then what = 'PEXPIRE'
elseif not may('ZREMRANGEBYRANK', log, 0, 0) then what = 'ZREMRANGEBYRANK' elseif not may('PTTL', log) then what = 'PTTL'
elseif ahead and not may('UNLINK', log) then what = 'UNLINK'
elseif beside and not may('ZREM', log, 'm') then what = 'ZREM' end

--@section reset
e, what = try('ZCARD', log), 'ZCARD'

--@section kept
kept = sum + taken

--@section back
-- given = what the entries behind a sum gave back, up to the mark. They are on each level of
-- the way from it up to a row that holds both, the places behind.
local given, names, unit = 0, {}, 1
repeat
  unit = unit * 32
  names[#names + 1] = pack('<BI6', #names, math.floor(from / unit))
until math.floor(from / unit) == math.floor(z / unit)
local rows = try('HMGET', log .. ':back', unpack(names))
if rows.err then
  local e, what = rows, 'HMGET'
  --@include errors.failed
end
unit = 1
for k, row in ipairs(rows.err and {} or rows) do
  --mutant:wide-places-read
  local width = k > 5 and 7 or 3
  local behind = width * (math.floor(from / unit) % 32 + 1) + 1
  local count = row and math.floor((#row - behind + 1) / width) or 0
  if count > 0 then
    local places = {parse('<' .. string.rep('I' .. width, count), row, behind)}
    for i = 1, count do given = given + places[i] end
  end
  unit = unit * 32
end

--@section giveback
-- The newest entry is changed itself: no sum stands behind it. Of another one the
-- rows are, up to the one that holds the first entry too, and no further: no later
-- call begins before that.
if used > 0 and charged > now - period then
  local _, after, cost = parse('>BdI4', v)
  --mutant:lua-log-instant
  if x == charged and after == kept and sum == kept and z == 0 and back <= cost then
    if back < cost then writes[#writes + 1] = {'ZADD', log, x, pack('>BdI4', 1, after - back, cost - back)} end
    writes[#writes + 1] = {'ZREM', log, v}
  else
    -- Few calls share an instant. Those that do are sorted by their sums.
    local when = string.format('%d', charged)
    local lo, hi, found = 0, -1, try('ZRANGE', log, when, when, 'BYSCORE', 'LIMIT', '0', '1')[1]
    if found then _, after, cost = parse('>BdI4', found) end
    if found and after ~= kept then
      lo, hi, found = try('ZCOUNT', log, '-inf', charged - 1), try('ZCOUNT', log, '-inf', charged) - 1, nil
    end
    while lo <= hi and not found do
      local probe = math.floor((lo + hi) / 2)
      local m = try('ZRANGE', log, probe, probe)[1]
      if #m ~= 13 and #m ~= 29 then status = CORRUPT break end
      _, after, cost = parse('>BdI4', m)
      if after == kept then found = m elseif after < kept then lo = probe + 1 else hi = probe - 1 end
    end
    if found and back <= cost then
      local gives, newest, score = {kept, back}, v, x
      --@include slidinglog.record
      if rows then
        -- The newest that stays gets the mark and the sum of all.
        if found == v and left < 1 then newest, score = unpack(try('ZRANGE', log, beside and -3 or -2, beside and -3 or -2, 'WITHSCORES')) end
        --@include slidinglog.mark
        if left < 1 then writes[#writes + 1] = {'ZREM', log, found} end
        --@include slidinglog.prune
      end
    end
  end
end

--@section returned
-- The newest entries leave, all behind the place lo. What counted of them stands in the tree at
-- the sum of all, which stays. What the one at lo gives back too stands at its own sum.
local used, sum, lent, behind = had, sum, beside and beside.stored, 0
if lent then used, sum = used - beside.folded, sum - beside.folded end
local card = try('ZCARD', log)
if type(card) == 'table' then
  local e, what = card, 'ZCARD'
  --@include errors.failed
  card = 0
end
local last = card - (lent and 2 or 1)
local lo, hi, newest, score, found, after, cost = math.max(y, last - back), last, nil, nil, nil, 0, 1000000000
--mutant:lua-log-returned-whole
if back == used then lo, hi = y - 1, y - 1 end
while lo >= 0 and status == 0 do
  local probe = math.floor((lo + hi) / 2)
  local e, _ = try('ZRANGE', log, probe, probe, 'WITHSCORES')
  if #e < 2 or #e[1] ~= 13 and #e[1] ~= 29 then status = CORRUPT break end
  _, after = parse('>Bd', e[1])
  behind = sum - after
  if z > after then
    local from = after
    --@include slidinglog.back
    behind = behind - given
  end
  if lo == hi then newest, score = unpack(e) break end
  if behind > back then lo = probe + 1 else hi = probe end
end
if not newest then
  if status == 0 then writes[#writes + 1] = {'ZREMRANGEBYRANK', log, 0, last} end
else
  local gives = lo < last and {sum, behind} or {}
  x = tonumber(score)
  if back > behind then gives[#gives + 1], gives[#gives + 2] = after, back - behind end
  --@include slidinglog.record
  if rows then
    if lo < last then writes[#writes + 1] = {'ZREMRANGEBYRANK', log, lo + 1, last} end
    --@include slidinglog.mark
    --@include slidinglog.prune
  end
end

--@section record
-- gives is pairs of a sum and what its entry gives back, which is no more than cost is left of.
-- left is what is left of the last one then. rows is nil if nothing may be written.
local names, have, unit, tree, sets, base, left, rows = {}, {}, 1, log .. ':back', {}, hz, 0, nil
if y > 0 then -- a clock that steps back counts from there again
  local _, after, less = parse('>BdI4', try('ZRANGE', log, 0, 0)[1])
  base = after - less
end
for i = 1, #gives, 2 do
  local level, unit = 0, 1
  repeat
    unit = unit * 32
    local name = pack('<BI6', level, math.floor(gives[i] / unit))
    if not have[name] then names[#names + 1], have[name] = name, '' end
    level = level + 1
  until math.floor(base / unit) == math.floor(gives[i] / unit)
end
-- Where no mark speaks of a tree, what stands there counts for nothing.
rows = z > 0 and try('HMGET', tree, unpack(names)) or names
local stays = try('PTTL', tree)
if rows.err or type(stays) == 'table' then
  local e, what = rows.err and rows or stays, rows.err and 'HMGET' or 'PTTL'
  rows = nil
  --@include errors.failed
else
  for k, name in ipairs(names) do have[name] = z > 0 and rows[k] or '' end
  for i = 1, #gives, 2 do
    local level, unit, less = 0, 1, gives[i + 1]
    repeat
      --mutant:wide-places
      local width = level > 4 and 7 or 3
      local name, place = pack('<BI6', level, math.floor(gives[i] / unit / 32)), width * (math.floor(gives[i] / unit) % 32)
      local row = have[name]
      if #row < place then row = row .. string.rep('\0', place - #row) end
      local given = #row > place and parse('<I' .. width, row, place + 1) or 0
      --mutant:garbage-row
      if #row > 32 * width or level == 0 and given >= cost then status = CORRUPT end
      if level == 0 then
        --mutant:lua-log-returned-in-part
        less = math.min(less, cost - given)
        left = cost - given - less
      end
      have[name] = string.sub(row, 1, place) .. pack('<I' .. width, math.max(0, given + less)) .. string.sub(row, place + width + 1)
      level, unit = level + 1, unit * 32
    until math.floor(base / unit) == math.floor(gives[i] / unit)
  end
  for k, name in ipairs(names) do sets[2 * k - 1], sets[2 * k] = name, have[name] end
  -- What no mark names is unused.
  if z == 0 and stays ~= -2 then writes[#writes + 1] = {'UNLINK', tree} end
  writes[#writes + 1] = {'HSET', tree, unpack(sets)}
  local ms = math.ceil((at + period - now) / 1000) + slack
  if z == 0 or stays < ms then writes[#writes + 1] = {'PEXPIRE', tree, ms + math.ceil(period / 1000)} end
end

--@section mark
-- With room ahead, so that not every settle moves the mark.
local mark = z >= gives[1] and z or sum + math.min(used, 1000000)
if newest and (mark ~= z or newest ~= v) then
  local marked = string.sub(newest, 1, 13) .. pack('>dd', mark, sum)
  if marked ~= newest then
    writes[#writes + 1] = {'ZADD', log, tonumber(score), marked}
    writes[#writes + 1] = {'ZREM', log, newest}
  end
end

--@section prune
-- Rows that stand before the first entry leave as new ones come: a few at a time.
local old, some = {}, z > 0 and not rows[1] and try('HRANDFIELD', tree, 16) or {}
for _, name in ipairs(some.err and {} or some) do
  local level, number
  --mutant:garbage-row-name
  if #name == 7 then level, number = parse('<BI6', name) end
  --mutant:rows-leave
  if level and (number + 1) * 32 ^ (level + 1) <= base then old[#old + 1] = name end
end
if old[1] then writes[#writes + 1] = {'HDEL', tree, unpack(old)} end
