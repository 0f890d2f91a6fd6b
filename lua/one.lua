-- A group of one policy: everything in locals.

--@section group
local same = fit
if not same then
  kind, limit, period, a, b, fill, first, price, behind = parse('<BdddddI4d', blob, from)
end
local count, cost = first, price
pos = behind
local hz, at, x, y, z, used = 0, now, 0, 0, 0, 0
local key, status, least, ahead, sum, v, leaves = keys[k], 0, 2 - op, false, 0
local log = key
k = k + 1
if kind ~= 5 then
  v = try('HGET', key, ARGV[names + 1])
  if v and v.err then
    if string.sub(v.err, 1, 9) ~= 'WRONGTYPE' then return v end
    status, v = 67, false
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
if kind > 3 then met = pack('<Bdd', 1, used, x) end
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
  if alone then reply = sec .. ' ' .. usec .. met
  else
    n = n + 1
    reply[n] = met
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
      call('HSET', key, ARGV[names + 1], v)
      --@include each.expire
    end
  end
end
