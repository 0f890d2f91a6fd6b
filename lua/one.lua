-- A group of one policy: everything in locals.

--@section group
if not same then
  kind, limit, period, a, b, fill, first, price, behind = parse('<BdddddI4d', blob, pos)
end
local count, cost = first, price
pos = behind
local hz, at, x, y, z, used = 0, now, 0, 0, 0, 0
local key, status, least, ahead, sum, v, leaves = KEYS[k], 0, 2 - op, false, 0
local log = key
k = k + 1
if kind ~= 5 then
  v = redis.pcall('HGET', key, ARGV[arg + 1])
  if v and v.err then
    if string.sub(v.err, 1, 9) ~= 'WRONGTYPE' then return v end
    status, v = 1, false
  end
end
if not same then
  local status = 0
  --@include each.range
  fit = status
end
if fit > 0 then status = fit end
--@include each.view
local met = v or '\0'
if kind > 3 then met = pack('<dd', used, x) end
local had = used
while true do
  local pass = count
  if used + (op == 1 and cost * count or cost) > limit then pass = math.max(0, floor((limit - used) / cost)) end
  if op == 1 then used = used + pass * cost end
  if pass < count and kind > 3 and status == 0 then
    local need = used + cost - limit
    --@include each.release
    met = met .. pack('<d', leaves or 0)
  end
  runs = runs - 1
  if runs < 1 then break end
  count, cost, pos = parse('<I4d', blob, pos)
  --@include each.range
end
if status > 0 then
  --@include each.refuse
else
  if alone then reply = sec .. ' ' .. usec .. '\0' .. met
  else
    reply[n + 1], reply[n + 2] = '\0', met
    n = n + 2
  end
  local taken, longer = used - had, 0
  if taken == 0 and op == 1 and had > 0 then
    --@include each.keep
    --@include each.lasts
    --@include each.expire
  elseif taken > 0 then
    --@include each.take
    if kind < 5 then
      --@include each.lasts
      call('HSET', key, ARGV[arg + 1], v)
      --@include each.expire
    end
  end
end
arg = arg + 2
