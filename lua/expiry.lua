-- Expiry of a hash, the write of its fields, the removal of ended ones.
--@section horizon
-- ends is until when the value counts. It is kept for longer, by spare, so that not
-- every take sets an expiry, but for no longer than twice a period. Rounded up to seconds
-- without a call of math.ceil, which costs more than all of these lines.
if ends > hz * 1000000 then
  hz = ends + spare + 999999
  hz = (hz - hz % 1000000) / 1000000
  if hz > marks then hz = marks end
  if hz > longer then longer = hz end
end
if due ~= own and (due > marks or due * 1000000 < now) then sweep, due = true, own end

--@section lasts
-- The right to set an expiry is asked for before the value is written. To set it before
-- would be the script's first write, after which Redis no longer refuses the second when
-- its memory is full.
if longer > 0 then
  ms = longer * 1000 - (now - now % 1000) / 1000 + slack
  local e, what = nil, not may('PEXPIRE', key, '1') and 'PEXPIRE'
  if what then
    --@include errors.failed
  end
end

--@section stored
-- e is how many fields are new. Only ever longer: the key holds other policies' counts
-- too. GT sets none where there is none, and NX one where there is none. The key is new if
-- a field is and it had no expiry: nothing in it is to be swept.
if e ~= 0 and e ~= 1 and type(e) == 'table' then
  local what = 'HSET'
  --@include errors.failed
else
  wrote = true
  if ms > 0 then
    local first, second = 'GT', 'NX'
    if e > 0 then first, second = second, first end
    --mutant:expiry-set-either-way
    if try('PEXPIRE', key, ms, first) == 0 then try('PEXPIRE', key, ms, second)
    --mutant:new-key-not-swept
    elseif e > 0 then sweep = false end
  end
  if sweep then
    --@include expiry.sweep
  end
end

--@section sweep
-- Removes the fields that no longer count, and writes into the others when to look
-- again. That is when the first of them ends, and soon where there are more than it
-- looks at. Fields of later versions stay. Those of which units are lent begin with LENT.
-- Best effort: the group is decided.
local all, live, mine, tick, late = try('HRANDFIELD', key, 64, 'WITHVALUES'), {}, {}, math.floor(now / 1000000), slack / 1000
local others = #all > 127
local least = others and tick or marks
for p = 1, policies do
  local name = args[names + p]
  mine[name] = true
  --mutant:own-fields-looked-at
  if least == tick then all[#all + 1], all[#all + 2] = name, try('HGET', key, name) or '' end
end
for i = 2, #all, 2 do
  local ends = #all[i] > 24 and string.find(all[i], '^[\1\17]') and parse('<I4', all[i], 2)
  if ends and ends + late < tick then try('HDEL', key, all[i - 1])
  elseif ends then
    live[#live + 1] = i
    --mutant:fields-of-others
    least, others = math.min(least, ends), others or not mine[all[i - 1]]
  end
end
local due = others and math.min(math.max(least, tick) + late, marks) or own
for _, i in ipairs(live) do
  local v = all[i]
  if parse('<I4', v, 6) ~= due then try('HSET', key, all[i - 1], string.sub(v, 1, 5) .. pack('<I4', due) .. string.sub(v, 10)) end
end
