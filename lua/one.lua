-- A group of one policy: everything in locals.

--@section group
local kind, limit, period, a, b, fill
kind, limit, period, a, b, fill, pos = struct.unpack('<Bddddd', blob, pos)
local hz, since, at, x, y, z, used = 0, now, now, 0, 0, 0, 0
local key, status, bad, ahead, sum, v, leaves = KEYS[k], 0, false, false, 0
local log = key
k = k + 1
if kind ~= 5 then
  v = redis.pcall('HGET', key, ARGV[arg + 1])
  if v and v.err then bad, v = true, false end
end
local met = v or '\0'
--@include each.range
--@include each.view
if kind > 3 then met = struct.pack('<dd', used, x) end
local had = used
for run = 1, runs do
  local count, cost
  count, cost, pos = struct.unpack('<I4d', blob, pos)
  if not (cost >= 2 - op and cost <= limit and cost % 1 == 0) then status = 2 break end
  local pass = count
  if used + cost * count > limit then pass = math.max(0, math.floor((limit - used) / cost)) end
  if op == 1 then used = used + pass * cost end
  if pass < count and kind > 3 then
    local need = used + cost - limit
    --@include each.release
    met = met .. struct.pack('<d', leaves or 0)
  end
end
--@include each.status
if status > 0 then out = out .. string.char(status)
else
  out = out .. '\0' .. met
  local taken = used - had
  if taken > 0 then
    local longer = 0
    --@include each.take
    if kind < 5 then
      redis.call('HSET', key, ARGV[arg + 1], v)
      --@include each.expire
    end
  end
end
arg = arg + 2
