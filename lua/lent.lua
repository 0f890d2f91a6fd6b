-- The twin of algo/rule/lent.go: units that processes hold in advance stand beside the
-- count. Every decision counts them as used, and they do not age.
--
-- Kept in the value of a count, behind its first nine bytes (version, horizon, due). The
-- version is greater by 16 then. In this order: an epoch of 8 bytes, when the present slot
-- of time began, borrowers in it and in the one before. Then the count up to which units are
-- lent and until when, number of ends. For each end its instant, when the last of its holders
-- stops, and the units. Behind that stands the rest of the value. The paths for one policy and for a set of small states do not read such a
-- value. They leave a group that has one to the general path, so a count of which nothing
-- is lent is decided as ever.
--
-- Beside a log the same stands as a string of its own: the version, then from the epoch
-- on as above. Of a SlidingLog that is a member of the set. Of a CompactLog it stands in
-- front of field h, in place of that field's version. So the read that every take makes
-- finds it, and the log's own entries are as without it.

--@section split
-- v becomes the value without what is lent, with loans that have ended charged at
-- their last instant. beside is what is lent: epoch, slot, its borrowers, those of the
-- slot before, up to which count units are lent and until when. Then each end, when it is due,
-- and its units. lent is the sum. What ends further ahead than a loan can counts as absent.
local beside, lent = false, 0
if v and kind < FIRST_WITH_KEY and status == 0 and #v > 42 and string.byte(v) > 15 then
  local version, h, d, epoch, slot, here, before, most, till, n, behind = parse('<BI4I4c8I7I2I2I7I7B', v)
  local all, plain = v, behind + 19 * n
  if version > 31 or #v < plain then status = CORRUPT
  else
    v = string.char(version - 16) .. string.sub(v, 2, 9) .. string.sub(v, plain)
    beside = {epoch, slot, here, before, most, till, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil} -- for five ends, as of one term
    for i = 1, n do
      local ends, stops, units
      ends, stops, units, behind = parse('<I7I7I5', all, behind)
      if ends > now + MAX_TERMS * 1000000 then
      elseif ends > now then
        lent = lent + units
        beside[#beside + 1] = ends
        beside[#beside + 1] = stops
        beside[#beside + 1] = units
      elseif status == 0 then
        --@include lent.fold
      end
    end
    if #beside == 6 and now >= slot + LENT_KEPT and (now >= till or till > now + RECALL_STAYS) then beside = false end
  end
end

--@section fold
-- op 1: as a take.
local now, op, longer, sweep = ends - 1, 1, 0, false
local hz, due, at, x, y, z, used, sum, cost, least, ahead = 0, 0, now, 0, 0, 0, 0, 0, 0, 0, false
--@include kinds.view
if status == 0 then
  local most
  --@include leases.most
  --mutant:lua-fold-saturates
  local had, taken, fresh = used, math.max(0, math.min(units, 2 * most - used))
  used = used + taken
  --@choose take below 48
  end
  -- The horizon says for how long the key is known to live, which this does not change.
  --mutant:lua-ended-loan-charged
  v = string.sub(fresh, 1, 1) .. pack('<I4I4', h, d) .. string.sub(fresh, 10)
end

--@section log
-- What is lent of a log, if its view has found some: beside becomes a table as above, and
-- keeps the string as stored. ended is the loans that have ended and still count, each with
-- its instant, and folded their sum. The view becomes that of a log with these loans as its last
-- entries. Only a take stores them.
if type(beside) == 'string' then
  local _, epoch, slot, here, before, most, till, n, behind = 0, '', 0, 0, 0, 0, 0, 0
  if #beside > 34 then _, epoch, slot, here, before, most, till, n, behind = parse('<Bc8I7I2I2I7I7B', beside) end
  if #beside ~= 35 + 19 * n then status, n = CORRUPT, 0 end
  beside = {epoch, slot, here, before, most, till, stored = beside, ended = {}, places = {}, folded = 0, newest = x}
  for i = 1, n do
    local ends, stops, units
    ends, stops, units, behind = parse('<I7I7I5', beside.stored, behind)
    if ends > now then
      if ends <= now + MAX_TERMS * 1000000 then
        lent = lent + units
        beside[#beside + 1] = ends
        beside[#beside + 1] = stops
        beside[#beside + 1] = units
      end
    --mutant:lua-lent-log-does-not-age
    elseif status == 0 and units > 0 and math.max(ends - 1, x) > now - period then
      --mutant:lua-lent-log-charged
      x, used, beside.folded = math.max(ends - 1, x), used + units, beside.folded + units
      beside.ended[#beside.ended + 1] = x
      beside.ended[#beside.ended + 1] = units
      beside.places[#beside.places + 1] = behind - 5
    end
  end
  if kind == SLIDINGLOG then sum = sum + beside.folded end
  if #beside == 6 and now >= slot + LENT_KEPT and (now >= till or till > now + RECALL_STAYS) then beside[2], beside[3], beside[4], beside[5], beside[6] = 0, 0, 0, 0, 0 end
end

--@section release
-- Of a log whose last entries are loans that have ended.
local folded = log and beside and beside.folded or 0
if folded > 0 and need <= had and need > had - folded then
  local rest, ended = need - had + folded, beside.ended
  for i = 1, #ended, 2 do
    rest = rest - ended[i + 1]
    if rest < 1 then leaves = ended[i] + period break end
  end
else
  --@include kinds.release
end

--@section returned
-- A Return takes units of a log first out of the loans that have ended, which are its last
-- entries. One of which none is left stays, with no units.
local whole, ended = beside.stored, beside.ended
for i = #ended, 2, -2 do
  local less = math.min(back, ended[i])
  local left, place = ended[i] - less, beside.places[i / 2]
  back, x = back - less, ended[i - 1]
  whole = string.sub(whole, 1, place - 1) .. pack('<I5', left) .. string.sub(whole, place + 5)
  if left > 0 then break end
  x = beside.newest
end
--@choose relent
end
beside.stored = whole

--@section packed
-- packed = what is lent, nil if nothing is and no borrower is remembered.
local packed
if #beside > 6 or beside[2] > 0 then
  local n = (#beside - 6) / 3
  packed = pack('<c8I7I2I2I7I7B' .. string.rep('I7I7I5', n), beside[1], beside[2], beside[3], beside[4], beside[5], beside[6], n, unpack(beside, 7))
end

--@section join
-- fresh becomes the value with what is lent, if anything is.
if fresh and beside then
  --@include lent.packed
  if packed then fresh = string.char(string.byte(fresh) + 16) .. string.sub(fresh, 2, 9) .. packed .. string.sub(fresh, 10) end
end

--@section joinlog
-- joined = what is to stand beside a log, which lives until all that is lent has left it.
--@include lent.packed
joined = packed and string.char(LENT) .. packed
if #beside > 6 then lasts = math.max(lasts, beside[#beside - 2]) end

--@section tell
-- before = what stands in the reply before what a policy met.
local before = ''
if beside and #beside > 6 then
  before = pack('<BB', 31, (#beside - 6) / 3)
  for i = 7, #beside, 3 do before = before .. pack('<ddd', beside[i], beside[i + 1], beside[i + 2]) end
end

--@section recall
-- A call of a limit was denied only because units are lent. They are lent only while there is
-- room for its cost, for ten seconds. due = that packed, nil if it stands for another five
-- already. It counts nothing, so an error of its write is left out: a server that refuses
-- writes denies as ever.
local due
if beside[6] <= now or beside[6] > now + RECALL_STAYS then beside[5] = 999999999999999 end
--mutant:lua-recall-seldom
if limit - cost < beside[5] or beside[6] < now + RECALL_STAYS / 2 then
  beside[5], beside[6] = math.min(beside[5], limit - cost), now + RECALL_STAYS
  due = pack('<I7I7', beside[5], beside[6])
end

--@section part
-- The path for one policy looks at a value beside which units are lent once more,
-- without them, unless a loan has ended. part is what stands between the value's halves,
-- and whole the value as it is stored. The text in told precedes the policy's state in the reply.
local n, behind, ends, stops, units = string.byte(whole, 43) or 0, 44
if fit == 0 and string.byte(whole) < 32 and #whole >= 43 + 19 * n and (n > 0 or now < parse('<I7', whole, 18) + LENT_KEPT or now < parse('<I7', whole, 36)) then
  again, told = true, n > 0 and pack('<BB', 31, n) or ''
  for i = 1, n do
    ends, stops, units, behind = parse('<I7I7I5', whole, behind)
    --mutant:lua-part-ends
    if ends <= now or ends > now + MAX_TERMS * 1000000 then again = false break end
    lent, told = lent + units, told .. pack('<ddd', ends, stops, units)
  end
end
if again then
  part = string.sub(whole, 10, behind - 1)
  v = string.char(string.byte(whole) - 16) .. string.sub(whole, 2, 9) .. string.sub(whole, behind)
  status, hz, due, at, x, y, z, used, sum = 0, 0, 0, now, 0, 0, 0, 0, 0
end

--@section met
-- A value beside which units are lent ends a section of the narrow paths. The loop
-- begins it again behind the groups that are decided, for this one group.
if status == CORRUPT and v and (string.byte(v) or 0) > 15 then
  decided, k, general, pos = decided + i - k, i, true, section
  break
end

--@section general
-- One group of a section is decided by the general path, which wants a set's costs behind
-- its policies. whole and behind are the blob and the end of the section in it meanwhile.
groups = 1
if shape == MANY_POLICIES then
  local heads, costs = {}, {pack('<I8', 1)}
  for p = 1, policies do
    local from = from + 49 * (p - 1)
    heads[p], costs[p + 1] = string.sub(blob, from, from + 40), string.sub(blob, from + 41, from + 48)
  end
  whole, behind = blob, from + 49 * policies
  blob, from, pos, all = table.concat(heads) .. table.concat(costs), 1, 1, 1
end
shape = ANY_POLICIES

--@section decided
if whole then blob, pos = whole, behind end
general, decided = false, decided + 1
if decided < total then pos = section else decided = 0 end
