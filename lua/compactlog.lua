-- The twin of algo/rule/compactlog.go: SlidingLog's decisions from packed entries, in a
-- hash. An entry is a call, or those of one instant: its time and its cost. Each 64
-- of them are a block with a number, and an entry's place is the number * 64 + its
-- place in the block. The newest entries are in field h, and become a block when one
-- more comes. So a take writes one field of at most 1.2 KB, and nothing ever grows
-- or moves as a whole.
-- Field h: version, horizon (s), newest time, units from the head on, head (the
--   place of the first entry that counts), its time, number of the block that the
--   tail is to be, the lowest number that may be stored, the tail's base time, and
--   the tail: time less base in 6 bytes, cost in 3.
-- Field n, 0 and up: block n: bytes of a time, bytes of a cost (0: each is 1), base
--   time, entries.
-- Field -1 - m: the sums of the blocks 64 m to 64 m + 63, in 4 bytes each. With all 64
--   it has their sum, too, in 6 bytes.
-- x is the newest entry's time, y the head, z its time, ahead the units from there on
-- or false where nothing counts. sum and v are field h.

--@section load
-- The entries of a block: in str from off on, each of size, time less from as form.
-- Behind that stands the cost as price, nil where it is 1. last is the place of the last
-- one.
if block == tail then str, off, from, size, form, price = v, 52, base, 9, '<I6', '<I3'
else
  str, off = try('HGET', log, block), 11
  local tw, cw = 0, 0
  if type(str) == 'string' and #str > 10 then tw, cw, from = parse('<BBd', str) end
  if tw < 1 or tw > 6 or cw > 3 or #str ~= 10 + 64 * (tw + cw) or from % 1 ~= 0 then
    status, str, off, tw, cw, from = CORRUPT, string.rep('\1', 74), 11, 1, 0, 0
  end
  size, form, price = tw + cw, string.sub('<I1<I2<I3<I4<I5<I6', 3 * tw - 2, 3 * tw), cw > 0 and string.sub('<I1<I2<I3', 3 * cw - 2, 3 * cw)
end
last = (#str - off + 1) / size - 1
behind = tonumber(string.sub(form, 3))

--@section view
local s = try('HGET', log, 'h')
if s and #s > 0 and string.byte(s) == LENT then
  --@include compactlog.split
end
if type(s) == 'table' then
  local e, what = s, 'HGET'
  --@include errors.failed
elseif s then
  local version, _, newest, units, head, first, tail, gone, base = 0
  if #s > 59 and #s < 628 and #s % 9 == 6 then version, _, newest, units, head, first, tail, gone, base = parse('<BI4dI4ddI5I5d', s) end
  if version ~= 1 or not (newest >= first and first >= 0 and newest <= 9007199254740992 and base >= 0 and base <= newest and head >= gone * 64
    and head * 9 < tail * 576 + #s - 51 and newest % 1 + head % 1 + first % 1 + base % 1 == 0) then status = CORRUPT
  elseif newest > now + period or newest <= now - period then sum = s
  else
    x, v, sum = newest, s, s
    if first <= now - period then
      local edge, block, slot = now - period, math.floor(head / 64), head % 64
      local str, off, from, size, form, price, behind, last
      --@include compactlog.load
      if from + parse(form, str, off + last * size) <= edge then
        -- None of the block counts. Which block is the first that has one that does?
        local lo, hi, step = block + 1, tail, 1
        if price then
          for i = slot, last do units = units - parse(price, str, off + i * size + behind) end
        else units = units - (last - slot + 1) end
        local p = lo
        while lo < hi do
          block = lo + step - 1
          if block >= hi then block = math.floor((lo + hi) / 2) end
          --@include compactlog.load
          if from + parse(form, str, off + last * size) <= edge then lo, step = block + 1, step * 2
          else hi, step = block, 1 + math.floor((block - lo) / 2) end
        end
        -- The fewer blocks are summed: those that leave, or those that stay.
        local q, total = lo, 0
        if lo - p > tail - lo then
          p, q, units = lo, tail, 0
          for i = 58, #s, 9 do units = units + parse('<I3', s, i) end
        end
        while p < q do
          local sums, i = try('HGET', log, -1 - math.floor(p / 64)), p % 64
          local stop = math.min(64, i + q - p)
          if type(sums) ~= 'string' or #sums < 4 * stop then status, stop, p = CORRUPT, i, q end
          p = p + stop - i
          if i == 0 and stop == 64 and #sums == 262 then total, i = total + parse('<I6', sums, 257), 64 end
          while i + 7 < stop do
            local c, d, e, f, g, h, k, l = parse('<I4I4I4I4I4I4I4I4', sums, 1 + 4 * i)
            total, i = total + c + d + e + f + g + h + k + l, i + 8
          end
          while i < stop do total, i = total + parse('<I4', sums, 1 + 4 * i), i + 1 end
        end
        if q == tail then units = units + total else units = units - total end
        block, slot = lo, 0
        --@include compactlog.load
      end
      local lo, hi, step = slot, last, 1
      while lo < hi do
        local i = lo + step - 1
        if i >= hi then i = math.floor((lo + hi) / 2) end
        if from + parse(form, str, off + i * size) <= edge then lo, step = i + 1, step * 2
        else hi, step = i, 1 + math.floor((i - lo) / 2) end
      end
      if price then
        for i = slot, lo - 1 do units = units - parse(price, str, off + i * size + behind) end
      else units = units - (lo - slot) end
      head, first = block * 64 + lo, from + parse(form, str, off + lo * size)
      if units < 1 or first <= edge then status, units = CORRUPT, 1 end
    end
    used, y, z = units, head, first
    ahead = units
    if x > now then at = x end
  end
end

--@section release
if need > had then leaves = at + period
else
  local tail, _, base = parse('<I5I5d', v, 34)
  local block, slot, k = math.floor(y / 64), y % 64, 0
  local str, off, from, size, form, price, behind, last
  while not leaves and status == 0 do
    --@include compactlog.load
    if not price then
      if slot + need - 1 <= last then leaves = from + parse(form, str, off + (slot + need - 1) * size) + period end
      need = need - (last - slot + 1)
    else
      for i = slot, last do
        need = need - parse(price, str, off + i * size + behind)
        if need < 1 then leaves = from + parse(form, str, off + i * size) + period break end
      end
    end
    -- Blocks that are in the way as a whole are passed by their sums. A row that the
    -- tail is in has the sum that it had as a block, before a give-back reopened it.
    block, slot = block + 1, 0
    local more = not leaves
    while more and block < tail do
      local sums = try('HGET', log, -1 - math.floor(block / 64))
      local i = block % 64
      if type(sums) ~= 'string' then sums = '' end
      --mutant:packed-row-of-tail
      if i == 0 and #sums == 262 and block + 64 <= tail then
        local units = parse('<I6', sums, 257)
        if units < need then need, block, i = need - units, block + 64, 64 end
      end
      while more and i < 64 and block < tail do
        if #sums < 4 * i + 4 then status, more = CORRUPT, false
        else
          local units = parse('<I4', sums, 1 + 4 * i)
          if units >= need then more = false else need, block, i = need - units, block + 1, i + 1 end
        end
      end
    end
    if block > tail and not leaves then status = CORRUPT end
  end
  if leaves and leaves <= now then status = CORRUPT end
end

--@section split
-- s becomes field h without what is lent, which beside becomes.
local n = string.byte(s, 35) or 0
beside, s = string.sub(s, 1, 35 + 19 * n), string.sub(s, 36 + 19 * n)
s = s ~= '' and '\1' .. s

--@section recall
local h = try('HGET', log, 'h')
if type(h) == 'string' then try('HSET', log, 'h', string.sub(h, 1, 20) .. due .. string.sub(h, 35)) end

--@section relent
writes[#writes + 1] = {'HSET', log, 'h', whole .. (sum ~= 0 and string.sub(sum, 2) or '')}

--@section take
-- First come the loans that have ended, each at its end.
local h, newest, tail, gone, base, entry, keeps, more, e, what = 0, 0, -1, 0, at, '', 0
local lasts, joined = at
if sum ~= 0 then
  local _
  h, newest, _, _, _, tail, gone, base = parse('<I4dI4ddI5I5d', sum, 2)
  keeps = #sum
end
if beside then
  --@include lent.joinlog
  --@include compactlog.ended
end
--@include compactlog.append
local ms, old = 0, nil
if lasts + period > h * 1000000 then
  h = math.min(math.ceil((lasts + 2 * period) / 1000000), marks)
  ms = h * 1000 - math.floor(now / 1000) + slack
  if not may('PEXPIRE', log, ms) then what = 'PEXPIRE' end
end
-- Blocks that no longer count leave after the take is stored, 16 at most per call.
local keep = math.floor(y / 64)
if gone < keep then
  old = {}
  while gone < keep and #old < 16 do
    old[#old + 1] = gone
    if gone % 64 == 63 then old[#old + 1] = -1 - math.floor(gone / 64) end
    gone = gone + 1
  end
  if not may('HDEL', log, unpack(old)) then what = 'HDEL' end
end
if not what then
  local value = ''
  if ahead then value = pack('<BI4dI4ddI5I5d', 1, h, newest, ahead, y, z, tail, gone, base) .. string.sub(sum, 52, keeps) .. entry
  elseif sum ~= 0 then value = '\1' .. pack('<I4', h) .. string.sub(sum, 6) end
  if joined then value = joined .. string.sub(value, 2) end
  --mutant:lua-packed-log-unused
  if value == '' then e = try('HDEL', log, 'h')
  elseif more then e = try('HSET', log, 'h', value, unpack(more)) else e = try('HSET', log, 'h', value) end
  if type(e) == 'table' then what = 'HSET' end
end
if what then
  --@include errors.failed
else
  wrote = true
  if ms > 0 then try('PEXPIRE', log, ms) end
  if old then try('HDEL', log, unpack(old)) end
end

--@section told
if taken > 0 then newest = at end

--@section ended
for i = 1, #beside.ended, 2 do
  local at, taken = beside.ended[i], beside.ended[i + 1]
  --@include compactlog.append
  sum = (keeps > 0 and string.sub(sum, 1, keeps) or string.rep('\0', 51)) .. entry
  keeps, entry = #sum, ''
end

--@section append
-- A Borrow may charge nothing.
if taken > 0 then
  if not ahead then
    tail = tail + 1
    ahead, y, z, base, keeps = 0, tail * 64, at, at, 0
  end
  if newest == at and ahead > 0 then
    -- Calls of one instant leave together.
    entry, keeps = pack('<I3', parse('<I3', sum, keeps - 2) + taken), keeps - 3
  else
    if at - base >= 281474976710656 then
      --@include compactlog.rebase
    end
    if keeps == 627 then
      --@include compactlog.seal
      tail, base, keeps = tail + 1, at, 0
    end
    entry = pack('<I6I3', at - base, taken)
  end
  newest, ahead = at, ahead + taken
end

--@section seal
-- The tail becomes a block, in as few bytes as its times and costs need. more is the
-- blocks that this call has made before.
local most, all, sums = 1, 0, tail % 64 > 0 and (more and more[#more] or try('HGET', log, -1 - math.floor(tail / 64)))
for i = 58, 627, 9 do
  local cost = parse('<I3', sum, i)
  all = all + cost
  --mutant:packed-costs
  if cost ~= 1 then most = math.max(most, cost + 1, 2) end
end
local span, tw, cw = parse('<I6', sum, 619), 1, most > 1 and 1 or 0
while span >= 256 ^ tw do tw = tw + 1 end
while most > 256 ^ cw and cw > 0 do cw = cw + 1 end
local shape = '(' .. string.rep('.', tw) .. ')' .. string.rep('.', 6 - tw) .. '(' .. string.rep('.', cw) .. ')' .. string.rep('.', 3 - cw)
if type(sums) ~= 'string' then sums = '' end
sums = string.sub(sums .. string.rep('\0', 256), 1, 4 * (tail % 64)) .. pack('<I4', all)
if tail % 64 == 63 then
  for i = 1, 249, 4 do all = all + parse('<I4', sums, i) end
  sums = sums .. pack('<I6', all)
end
local block = {tail, pack('<BBd', tw, cw, base) .. string.gsub(string.sub(sum, 52), shape, cw > 0 and '%1%2' or '%1'), -1 - math.floor(tail / 64), sums}
if more then for i = 1, 4 do more[#more + 1] = block[i] end else more = block end

--@section rebase
-- Six bytes hold nine years. Where more lies behind the base the head is in the tail,
-- and what stands before it counts no more.
local moved = {}
for i = 52 + 9 * (y % 64), keeps, 9 do
  local t, cost = parse('<I6I3', sum, i)
  moved[#moved + 1] = pack('<I6I3', base + t - z, cost)
end
tail, base = tail + 1, z
y, sum = tail * 64, string.sub(sum, 1, 51) .. table.concat(moved)
keeps = #sum

--@section rights
if not may('HSET', log, 'h', '') then what = 'HSET' elseif not may('PEXPIRE', log, 1) then what = 'PEXPIRE'
elseif not may('HDEL', log, 0) then what = 'HDEL' end

--@section reset
e, what = try('HGET', log, 'h'), 'HGET'

--@section giveback
-- The newest entries leave as far as they are empty. A block becomes the tail again
-- where none of the tail is left. The oldest stay: they count again where the clock
-- goes back.
--mutant:lua-give-back-packed
if used > 0 and charged > now - period then
  local units, head, first, tail, _, base = parse('<I4ddI5I5d', v, 14)
  local block, lo, hi = 0, math.floor(y / 64), tail
  local str, off, from, size, form, price, behind, last
  while lo < hi do
    block = math.floor((lo + hi) / 2)
    --@include compactlog.load
    if from + parse(form, str, off + last * size) < charged then lo = block + 1 else hi = block end
  end
  block = lo
  --@include compactlog.load
  lo, hi = math.max(0, y - 64 * block), last
  while lo < hi do
    local i = math.floor((lo + hi) / 2)
    if from + parse(form, str, off + i * size) < charged then lo = i + 1 else hi = i end
  end
  if status == 0 and from + parse(form, str, off + lo * size) == charged then
    if not price then
      str = string.sub(str, 1, 1) .. '\1' .. string.sub(str, 3, 10) .. string.gsub(string.sub(str, 11), '(' .. string.rep('.', size) .. ')', '%1\1')
      size, price = size + 1, '<I1'
    end
    local at, sets = off + lo * size + behind, {'HSET', log, 'h', ''}
    local cost = parse(price, str, at)
    back = math.min(back, cost)
    str = string.sub(str, 1, at - 1) .. pack(price, cost - back) .. string.sub(str, off + lo * size + size)
    if block == tail then v = str
    else
      local place, sums = 4 * (block % 64), try('HGET', log, -1 - math.floor(block / 64))
      if type(sums) ~= 'string' or #sums < place + 4 then status, sums = CORRUPT, string.rep('\0', 256) end
      sets[5], sets[6], sets[7] = block, str, -1 - math.floor(block / 64)
      sets[8] = string.sub(sums, 1, place) .. pack('<I4', parse('<I4', sums, place + 1) - back) .. string.sub(sums, place + 5, 256)
      if #sums == 262 then sets[8] = sets[8] .. pack('<I6', parse('<I6', sums, 257) - back) end
    end
    units, back = units - back, 0
    --@include compactlog.newest
  end
end

--@section returned
local beside = beside and beside.stored
local units, head, first, tail, _, base = parse('<I4ddI5I5d', v, 14)
local str, off, from, size, form, price, behind, last
local block, sets = 0, {'HSET', log, 'h', ''}
--@include compactlog.newest
x = newest

--@section newest
-- The newest entries leave as far as they are empty, or are returned: back units of them.
local gone, row, newest = {}, false, 0
while units > 0 and status == 0 do
  local cost = parse('<I3', v, #v - 2)
  local less = math.min(back, cost)
  units, back = units - less, back - less
  if cost > less then
    --mutant:lua-packed-returned-in-part
    v = string.sub(v, 1, -4) .. pack('<I3', cost - less)
    break
  end
  v = string.sub(v, 1, -10)
  if #v == 51 and units > 0 then
    local whole
    repeat -- blocks that leave as a whole are passed by their sums
      block = tail - 1
      if not row or block % 64 == 63 then row = try('HGET', log, -1 - math.floor(block / 64)) end
      if type(row) ~= 'string' or #row < 4 * (block % 64) + 4 then status, row = CORRUPT, string.rep('\1', 256) end
      tail, gone[#gone + 1] = block, block
      local sum = parse('<I4', row, 4 * (block % 64) + 1)
      whole = sum <= back
      if whole then units, back = units - sum, back - sum end
    until block < 1 or units < 1 or not whole
    if not whole then
      tail = false
      --@include compactlog.load
      local form, shape = string.rep('.', behind), string.rep('\0', 6 - behind)
      if price then form, shape = '(' .. form .. ')(' .. string.rep('.', size - behind) .. ')', '%1' .. shape .. '%2' .. string.rep('\0', 3 - size + behind)
      else form, shape = '(' .. form .. ')', '%1' .. shape .. '\1\0\0' end
      v = v .. string.gsub(string.sub(str, 11), form, shape)
      tail, base = block, from
    elseif units > 0 then status = CORRUPT end
  end
end
if units == 0 then
  writes[#writes + 1] = {'UNLINK', log}
  --mutant:lua-lent-log-stays
  if beside then
    writes[#writes + 1] = {'HSET', log, 'h', beside}
    writes[#writes + 1] = {'PEXPIRE', log, math.ceil((period + 1000000) / 1000) + slack}
  end
elseif status == 0 then
  newest = base + parse('<I6', v, #v - 8)
  sets[4] = string.sub(v, 1, 5) .. pack('<dI4', newest, units) .. pack('<ddI5', head, first, tail) .. string.sub(v, 39, 43) .. pack('<d', base) .. string.sub(v, 52)
  if beside then sets[4] = beside .. string.sub(sets[4], 2) end
  writes[#writes + 1] = sets
  -- Lua passes some 8,000 arguments at most.
  --mutant:blocks-leave-in-parts
  for i = 1, #gone, 1000 do writes[#writes + 1] = {'HDEL', log, unpack(gone, i, math.min(i + 999, #gone))} end
end
