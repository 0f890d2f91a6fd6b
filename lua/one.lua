-- A group of one policy: everything in locals.

--@section group
local key, v, ahead, leaves = keys[k]
local log, hz, at, x, y, z, used, sum, status = key, 0, now, 0, 0, 0, 0, 0, 0
k = k + 1
if not same then
  kind, limit, period, a, b, fill, first, price, behind = parse('<BdddddI4d', blob, from)
  field = args[names + 1]
end
local count, cost = first, price
pos = behind
if kind ~= 5 then
  v = try('HGET', key, field)
  -- An error's table has no length; to ask every string for .err would go
  -- through the metatable of strings.
  if v and #v == 0 and v.err then
    if string.sub(v.err, 1, 9) ~= 'WRONGTYPE' then return v end
    status, v = 67, false
  end
end
if not same then
  local status = 0
  --@include each.range
  fit, same = status, true
end
if fit > 0 then status = fit end
--@include each.view
local met = v or '\0'
if kind > 3 then met = pack('<Bdd', 1, used, x) end
local had = used
while true do
  local pass = count
  if used + (takes and cost * count or cost) > limit then pass = math.max(0, math.floor((limit - used) / cost)) end
  if takes then used = used + pass * cost end
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
  if taken == 0 and takes and had > 0 then
    --@include each.keep
    --@include each.lasts
    --@include each.expire
  elseif taken > 0 then
    --@include each.take
    if kind < 5 then
      --@include each.lasts
      call('HSET', key, field, v)
      --@include each.expire
    end
  end
end
