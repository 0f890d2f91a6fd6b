-- The twin of algo/slidinglog.go, on the sorted set that people know: a
-- member a call, scored by its time. The member carries the sum of costs so
-- far, big-endian so that members of one instant sort by it, and its own
-- cost: counting is a subtraction, and no call is ever a hundred members.
-- x is the newest entry's time, y the rank of the first that counts, sum what
-- the newest's sum is.
-- Member: version, sum, cost.

--@section view
local last, stale = try('ZRANGE', log, -1, -1, 'WITHSCORES')
local e, what = last.err and last, 'ZRANGE'
if not e and last[2] then
  stale, what = try('ZCOUNT', log, '-inf', now - period), 'ZCOUNT'
  if type(stale) == 'table' then e = stale end
end
if e then
  --@include kinds.fails
elseif last[2] then
  local newest = tonumber(last[2])
  if newest > now + period then ahead = true
  else
    local _, before, after, cost
    if #last[1] == 13 then _, after = parse('>Bd', last[1]) else status = 67 end
    y = stale
    if status == 0 and newest > now - period then
      local first = try('ZRANGE', log, y, y)[1]
      if #first == 13 then _, before, cost = parse('>BdI4', first) else status = 67 end
      if status == 0 then used, x = after - before + cost, newest end
      if x > now then at = x end
    end
    sum = after or 0
    if not (sum >= used and sum <= 9007199254740992 and used >= 0 and sum % 1 + used % 1 == 0 and newest % 1 == 0
      and string.byte(last[1]) == 1) then status = 67 end
  end
end

--@section release
-- Every entry holds at least one unit, so the one sought is at most need - 1
-- behind the first; where every cost is 1 the first probe finds it.
local card = need > had and 0 or try('ZCARD', log)
if need > had then leaves = at + period
elseif type(card) == 'table' then
  local e, what = card, 'ZCARD'
  --@include kinds.fails
else
  local lo, hi = y, card - 1
  if y + need - 1 < hi then hi = y + need - 1 end
  local probe, goal = hi, sum - had + need
  while true do
    local e = try('ZRANGE', log, probe, probe, 'WITHSCORES')
    if lo > hi or #e[1] ~= 13 then status = 67 break end
    local _, after, cost = parse('>BdI4', e[1])
    if after < goal then lo = probe + 1
    elseif after - cost >= goal then hi = probe - 1
    else leaves = tonumber(e[2]) + period break end
    probe = math.floor((lo + hi) / 2)
  end
  if leaves and leaves % 1 ~= 0 then status = 67 end
end

--@section take
-- The call is stored before anything is dropped: after a write that frees
-- memory Redis no longer refuses one that takes it. Only a log that lies too
-- far ahead of the clock goes first, and whole. The rights for the writes after
-- the first are asked for before it.
local ms, e, what = math.ceil((at + period - now) / 1000) + slack
local left = try('PTTL', log)
if type(left) == 'table' then e, what = left, 'PTTL'
elseif left < ms and not may('PEXPIRE', log, ms) then what = 'PEXPIRE'
elseif y > 0 and not may('ZREMRANGEBYRANK', log, 0, 0) then what = 'ZREMRANGEBYRANK'
elseif ahead then
  if may('ZADD', log, at, '') then e, what = try('UNLINK', log), 'UNLINK' else what = 'ZADD' end
  if type(e) == 'number' then e, what, left = nil, nil, -2 end
end
if not what then
  e = try('ZADD', log, at, pack('>BdI4', 1, sum + taken, taken))
  if type(e) == 'table' then what = 'ZADD' end
end
if what then
  --@include kinds.fails
else
  wrote = true
  if y > 0 then try('ZREMRANGEBYRANK', log, 0, math.min(y, 128) - 1) end -- mutant: bounded-pruning
  if left < ms then try('PEXPIRE', log, ms + math.ceil(period / 1000)) end
end

--@section rights
if not may('ZADD', log, 1, 'm') then what = 'ZADD' elseif not may('PEXPIRE', log, 1) then what = 'PEXPIRE'
elseif not may('ZREMRANGEBYRANK', log, 0, 0) then what = 'ZREMRANGEBYRANK' end

--@section reset
e, what = try('ZCARD', log), 'ZCARD'
