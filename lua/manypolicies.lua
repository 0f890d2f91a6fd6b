-- A section of groups of several small states and one call each, which costs
-- something in each policy: the common set. Each policy's new value is made while
-- it is looked at, and thrown away if another policy denies. Packing in vain costs 1.7
-- times a plain script. Keeping every local in a table until all have been looked at
-- costs 3.1 times.

--@section section
local field, second, third = args[names + 1], args[names + 2], args[names + 3]
-- What the first group reads of the section, for those after it.
local same, sets, fit, least = false, groups > 1 and {}, 0, 2 - op
for i = k, k + groups - 1 do
  local key, status, longer, sweep, ms, one, two, three, more, ahead, sum, log, bad = keys[i], 0, 0, false, 0
  local values = try('HMGET', key, unpack(args, names + 1, names + policies))
  if values.err then
    local e, what = values, 'HMGET'
    --@include errors.failed
    values = {}
  end
  local later, passes, met, before, beside = '', takes, values, 0
  if not alone then met, before = reply, n end
  for p = 1, policies do
    local kind, limit, period, a, b, fill, cost
    if same then
      local s = sets[p]
      --mutant:set-numbers
      kind, limit, period, a, b, fill, cost = s[1], s[2], s[3], s[4], s[5], s[6], s[7]
    else
      kind, limit, period, a, b, fill, cost, pos = parse('<Bdddddd', blob, pos)
      local status = 0
      --@include check.range
      if status > 0 then fit = status end
      if groups > 1 then sets[p] = {kind, limit, period, a, b, fill, cost} end
    end
    --mutant:set-ranges
    if fit > 0 then status = fit end
    local v, fresh = values[p]
    local hz, due, at, x, y, z, used = 0, 0, now, 0, 0, 0, 0
    --@include kinds.view
    if status == CORRUPT and v and (string.byte(v) or 0) > 15 then beside = v end
    if kind > LAST_OF_WORDS then met[before + p] = pack('<Bdd', 1, used, x) else met[before + p] = v or '\0' end
    local had, taken = used, cost
    used = used + taken
    if used > limit then
      refused = true
      if passes then longer, sweep, passes, more = 0, false, false, nil end
      if kind > LAST_OF_WORDS and status == 0 then
        local need, leaves = used - limit
        --@include kinds.release
        later = later .. pack('<d', leaves)
      end
      taken = 0
    end
    if takes and status == 0 and (passes or taken == 0) then
      --@include kinds.new
      if fresh and passes and p < 4 then
        if p == 1 then one = fresh elseif p == 2 then two = fresh else three = fresh end
      elseif fresh then
        more = more or {}
        more[#more + 1] = args[names + p]
        more[#more + 1] = fresh
      end
    end
  end
  if status == 0 and (passes or more) then
    --@include expiry.lasts
    if status == 0 then
      local e
      if not passes then e = try('HSET', key, unpack(more))
      elseif policies == 3 then e = try('HSET', key, field, one, second, two, third, three)
      elseif policies == 2 then e = try('HSET', key, field, one, second, two)
      else e = try('HSET', key, field, one, second, two, third, three, unpack(more)) end
      --@include expiry.stored
    end
  end
  if status > 0 then
    local v, met = beside
    --@include lent.met
    --@include kinds.answer
  elseif not alone then
    n = n + policies
    if later ~= '' then
      n = n + 1
      reply[n] = later
    end
  elseif policies == 3 then reply = sec .. ' ' .. usec .. met[1] .. met[2] .. met[3] .. later
  else reply = sec .. ' ' .. usec .. table.concat(met) .. later end
  same = true
end
if not general then k, decided = k + groups, 0 end
