-- The twin of algo/slidinglog.go, on the sorted set that people know: a
-- member a call, scored by its time. The member carries the sum of costs so
-- far, big-endian so that members of one instant sort by it, and its own
-- cost: counting is a subtraction, and no call is ever a hundred members.
-- x is the newest entry's time, y the rank of the first that counts, z the
-- number of entries up to the newest (0 where that is all of them).
-- Member: version, sum, cost.

--@section view
local last = redis.pcall('ZRANGE', log, -1, -1, 'WITHSCORES')
if last.err then bad = true
elseif last[2] then
  local newest = tonumber(last[2])
  if newest > now + period then
    z = redis.call('ZCOUNT', log, '-inf', now + period)
    ahead = true
    if z > 0 then
      last = redis.call('ZRANGE', log, z - 1, z - 1, 'WITHSCORES')
      newest = tonumber(last[2])
    end
  end
  if (z > 0 or not ahead) and newest > now - period then
    y = redis.call('ZCOUNT', log, '-inf', now - period)
    local first = redis.call('ZRANGE', log, y, y)[1]
    if #last[1] ~= 13 or #first ~= 13 or string.byte(first) ~= 1 or string.byte(last[1]) ~= 1 then bad = true
    else
      local _, before, cost = struct.unpack('>BdI4', first)
      local _, after = struct.unpack('>Bd', last[1])
      used, x, sum = after - before + cost, newest, after
      if not (used >= 1 and used % 1 == 0) then bad = true end
    end
    if x > now then at = x end
  end
end

--@section release
-- leaves = when the oldest units, need of them, have left. Every entry holds
-- at least one unit, so the one sought is at most need - 1 behind the first;
-- where every cost is 1 the first probe finds it.
if need > had then leaves = at + period
else
  local lo, hi = y, (z > 0 and z or redis.call('ZCARD', log)) - 1
  if y + need - 1 < hi then hi = y + need - 1 end
  local probe, goal = hi, sum - had + need
  while true do
    local e = redis.call('ZRANGE', log, probe, probe, 'WITHSCORES')
    if lo > hi or #e[1] ~= 13 then bad = true break end
    local _, after, cost = struct.unpack('>BdI4', e[1])
    if after < goal then lo = probe + 1
    elseif after - cost >= goal then hi = probe - 1
    else leaves = tonumber(e[2]) + period break end
    probe = math.floor((lo + hi) / 2)
  end
end

--@section take
if had == 0 then redis.call('UNLINK', log)
else
  if ahead then redis.call('ZREMRANGEBYSCORE', log, now + period + 1, '+inf') end
  if y > 0 then redis.call('ZREMRANGEBYRANK', log, 0, math.min(y, 128) - 1) end
end
redis.call('ZADD', log, at, struct.pack('>BdI4', 1, sum + taken, taken))
local ms = math.ceil((at + period - now) / 1000) + slack
if redis.call('PTTL', log) < ms then redis.call('PEXPIRE', log, ms + math.ceil(period / 1000)) end
