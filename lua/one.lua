-- A section of groups of one policy that ask for one thing, once or many times:
-- everything in locals. What its groups share is looked up once; the field's name
-- alone, looked up for each, took a fiftieth of a group's time.

--@section section
local kind, limit, period, a, b, fill, first, cost, behind = parse('<BdddddI4d', blob, from)
local field, hashed, fit, asked = args[names + 1], kind < 48, 0, takes and first * cost or cost
do
  local status, least = 0, 2 - op
  --@include each.range
  fit = status
end
local room, quick = limit - asked, takes and fit == 0 -- mutant: quick-one-take
pos = behind
for i = k, k + groups - 1 do
  local key, status, longer, sweep, ms, bad, v, fresh, met = keys[i], fit, 0, false, 0
  if hashed then v = try('HGET', key, field) end
  if quick and v then
    --@choose quick
    end
  end
  if fresh then met = v
  else
    local log, hz, due, at, x, y, z, used, sum, ahead, leaves = key, 0, 0, now, 0, 0, 0, 0, 0
    -- An error's table has no length; to ask every string for .err would go
    -- through the metatable of strings.
    if v and #v == 0 and v.err then
      local e, what = v, 'HGET'
      --@include each.fails
      v = false
    end
    --@include each.view
    met = v or '\0'
    if kind > 31 then met = pack('<Bdd', 1, used, x) end
    local had, pass = used, first
    if used > room then pass = math.max(0, math.floor((limit - used) / cost)) end
    if pass < first and kind > 31 and status == 0 then
      local need = used + (takes and pass * cost or 0) + cost - limit
      --@include each.release
      met = met .. pack('<d', leaves or 0)
    end
    if takes and status == 0 then
      local taken = pass * cost
      used = used + taken
      --@include each.new
      if fresh then
        --@include each.lasts
      end
    end
  end
  if fresh and status == 0 then
    local e = try('HSET', key, field, fresh)
    --@include each.stored
  end
  --@include each.answer
end
k = k + groups
