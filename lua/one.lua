-- A section of groups of one policy: everything in locals. What its groups
-- share is looked up once; the field's name alone, looked up for each, took a
-- fiftieth of a group's time.

--@section section
local kind, limit, period, a, b, fill, first, price, behind = parse('<BdddddI4d', blob, from)
local field, hashed, fit = args[names + 1], kind ~= 5
do
  local cost, status = price, 0
  --@include each.range
  fit = status
end
-- What most groups ask is one run of takes, which fits. More than one go through
-- the loop whatever the key holds: it reads them, up to where the section ends.
local once, whole = takes and all == 1, first * price -- mutant: one-run-of-takes
local fits = limit - whole
local quick, room, add, edge = once and kind == 3 and fit == 0, fits * 1048576, whole * 1048576, (now + fill) / 1000000 -- mutant: quick-one-take
pos = behind
for i = k, k + groups - 1 do
  local key, status, longer, sweep, bad, v, fresh, met = keys[i], fit, 0, false
  if hashed then v = try('HGET', key, field) end
  if quick and v and #v == 25 then -- mutant: quick-length
    --@include tokenbucket.quick
  end
  if fresh then
    local e = try('HSET', key, field, fresh)
    met = v
    if e == 0 then wrote = true
    else
      local what = 'HSET'
      --@include each.fails
    end
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
    if kind > 3 then met = pack('<Bdd', 1, used, x) end
    local had, taken = used, whole
    if once and used <= fits then used = used + whole -- mutant: count-below-zero
    else
      local count, cost, runs = first, price, all
      pos = behind
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
      taken = used - had
    end
    local stores = takes and status == 0 and (taken > 0 or kind == 3 and had > 0 and at + fill > hz * 1000000)
    if not stores then
    elseif not hashed then
      --@include slidinglog.take
    else
      if taken > 0 then
        --@include each.take
      else
        --@include each.keep
      end
      --@include each.lasts
      if status == 0 then
        local e = try('HSET', key, field, v)
        --@include each.stored
      end
    end
  end
  --@include each.answer
end
k = k + groups
