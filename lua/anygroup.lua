-- A section of groups of several policies, each decided together, and of all that
-- concerns leases and records. What the one-policy path keeps in locals is kept in
-- one table a policy.

--@section section
for _ = 1, groups do
  local states, status, met, writes, ms, bad = {}, 0, '', {}, 0
  pos = from
  local asks, key, hashed, kinds, logs, shadows, small = op, keys[k], nil, {}, {}, {}, 0
  local lease, id, length, attempt, how, held, open, ends, note, ttl, lasting, till, costs, long, less, reserved
  if shape == 4 then
    --@include leases.ask
    --@include leases.find
  end
  for p = 1, policies do
    kinds[p] = string.byte(blob, pos + 41 * (p - 1))
    if kinds[p] > 63 then kinds[p], shadows[p] = kinds[p] - 64, true end
    if kinds[p] < 48 then small = small + 1 end
  end
  local own = 4294967295 - small
  if small > 0 or shape > 3 then k = k + 1 end
  if lease then k = k + 1 end
  for p = 1, policies do
    if kinds[p] > 47 then logs[p] = keys[k]; k = k + 1 end
  end
  if op == 4 then
    --@include leases.settle
  elseif op == 7 then
    --@include leases.extend
  end
  if op == 5 then
    --@include anygroup.reset
  elseif asks ~= op or op ~= 4 and op ~= 7 then
    --@include anygroup.decide
  end
  if asks ~= 2 and asks ~= 5 and status == 0 then
    --@include anygroup.store
  end
  if op == 4 then met = '\0' end
  if status > 0 then refused = true end
  --@include kinds.answer
end

--@section decide
-- shift: before the fields of the policies stands that of the leases.
local shift = asks == 6 and 1 or 0
if asks == 6 and held and status == 0 then status = 78 end -- mutant: reserve-finds-lease
if small + shift > 0 then
  if asks == 6 then hashed = try('HMGET', key, 'leases', unpack(args, names + 1, names + policies))
  else hashed = try('HMGET', key, unpack(args, names + 1, names + policies)) end
  if hashed.err then
    local e, what = hashed, 'HMGET'
    --@include errors.failed
    hashed = {}
  end
end
for p = 1, policies do
  local _, limit, period, a, b, fill
  _, limit, period, a, b, fill, pos = parse('<Bddddd', blob, pos)
  local kind = kinds[p]
  local hz, due, at, x, y, z, used, cost, least = 0, 0, now, 0, 0, 0, 0, 0, 0
  local ahead, sum, log, v = false, 0, logs[p], hashed and hashed[p + shift]
  --@include lent.split
  --@include check.range
  --@include kinds.view
  if beside then
    --@include lent.tell
    met = met .. before
  end
  if kind > 31 then met = met .. pack('<Bdd', 1, used, x) else met = met .. (v or '\0') end
  states[p] = {kind, limit, period, a, b, fill, hz, due, at, x, y, z, used, used, ahead, sum, log, v, 0, args[names + p]}
  -- What is lent is taken off the limit.
  if beside then states[p].beside, states[p].lent, states[p][2] = beside, lent, limit - lent end -- mutant: lua-lent-met
end
local room = 9007199254740992
for p = 1, asks == 3 and policies or 0 do
  if not shadows[p] then room = math.min(room, states[p][2] - states[p][13]) end
end
for run = 1, all do
  local count = parse('<I4', blob, pos)
  local pass, total = count, 0
  pos = pos + 4
  for p = 1, policies do
    local s, cost = states[p]
    local kind, most = s[1], s[2] + (s.lent or 0)
    cost, pos = parse('<d', blob, pos)
    if op == 4 and kind == 54 then cost = 0 end -- mutant: lua-slot-recorded
    if asks == 3 or asks > 7 then
      --@include leases.most
    elseif kind == 54 then most = 1 end
    if not (cost >= 0 and (cost <= most or shadows[p] and kind ~= 54) and cost % 1 == 0) then status, cost = 82, 1 end
    if asks == 3 then cost = math.max(1, math.min(cost, room)) end -- mutant: at-most-room
    if asks == 8 then cost = math.max(0, math.min(cost, 2 * most - s[13])) -- mutant: record-saturates
    elseif asks == 9 then cost = math.max(0, math.min(cost, s[2] - s[13])) -- mutant: lua-record-by-room
    elseif shadows[p] then
    elseif s[13] + (asks ~= 2 and cost * pass or cost) > s[2] then pass = math.max(0, math.floor((s[2] - s[13]) / cost)) end
    s[19], total = cost, total + cost
  end
  if total == 0 and (asks == 1 or asks == 3) then status = 82 end
  if pass < count then refused = true end
  for p = 1, policies do
    local s, charged = states[p], pass
    local kind, limit, cost = s[1], s[2], s[19]
    -- A shadow charges the first of the calls that pass, as many as it has room for.
    if shadows[p] and asks < 8 then
      if asks == 3 then cost = math.max(1, math.min(cost, limit - s[13])) end
      if s[13] + (asks ~= 2 and cost * pass or cost) > limit then charged = math.max(0, math.floor((limit - s[13]) / cost)) end -- mutant: lua-shadow-room
      s[19], s[23] = cost, charged < 1
    end
    if asks ~= 2 then s[13] = s[13] + charged * cost end
    local need, lent = s[13] + cost - limit, s.lent or 0
    if charged < count and kind > 31 and need > 0 and cost <= limit + lent and status == 0 then
      local leaves
      need = need - lent
      local period, a, b, at, x, y, z, had, sum, log, v = s[3], s[4], s[5], s[9], s[10], s[11], s[12], s[14], s[16], s[17], s[18]
      if need > 0 then
        --@include kinds.release
      end
      met = met .. pack('<d', leaves or 0)
    end
  end
  if asks == 6 and pass > 0 and status == 0 then
    --@include leases.reserve
  end
end

--@section store
-- The lease is written first: what the server refuses for all, as for want of
-- memory, it refuses before a script's first write. Should a count be refused then,
-- the lease is set back. Where several keys are written, no right may be found
-- missing between them.
local fields, longer, sweep, parts = {}, 0, false, #writes
for p, s in ipairs(states) do
  local kind, period, a, b, fill = s[1], s[3], s[4], s[5], s[6]
  local hz, due, at, x, y, z, used, had, v, fresh = s[7], s[8], s[9], s[10], s[11], s[12], s[13], s[14], s[18]
  local taken, sum = used - had, s[16]
  if s[17] then
    if taken > 0 then parts = parts + 1 end
  elseif taken < 0 then
    local back, charged, kept = -taken, s[21], s[22]
    --@choose giveback
    end
  else
    --@include kinds.new
  end
  if s.beside then
    local beside = s.beside
    --@include lent.join
  end
  if fresh then
    fields[#fields + 1] = s[20]
    fields[#fields + 1] = fresh
  end
end
if lasting then
  fields[#fields + 1] = 'leases'
  fields[#fields + 1] = lasting
  longer, sweep = math.max(longer, (parse('<I4', lasting, 2))), sweep or small == 0 -- mutant: leases-sweep
end
--@include expiry.lasts
if fields[1] then parts = parts + 1 end
if (parts > 1 or looks) and status == 0 then -- mutant: joint-rights
  local e, what
  if looks and note and not may('SET', lease, note) then what = 'SET' end
  if fields[1] and not may('HSET', key, 'f', 'v') then what = 'HSET' end
  for p, s in ipairs(states) do
    local kind, log, ahead = s[1], s[17], s[15]
    if log and s[13] > s[14] then
      --@choose rights
      end
    end
  end
  for _, w in ipairs(writes) do
    if not may(unpack(w)) then what = w[1] end
  end
  if what then
    --@include errors.failed
  end
end
if not looks then
  --@include leases.set
  for p, s in ipairs(states) do
    local kind, period, at, y, z, ahead, sum, log, taken = s[1], s[3], s[9], s[11], s[12], s[15], s[16], s[17], s[13] - s[14]
    if taken > 0 and status == 0 and log then
      --@choose take
      end
    end
  end
  if fields[1] and status == 0 then
    local e = try('HSET', key, unpack(fields))
    --@include expiry.stored
  end
  for _, w in ipairs(writes) do
    if status == 0 then
      local e, what = try(unpack(w)), w[1]
      if type(e) == 'table' and e.err then
        --@include errors.failed
      else wrote = true end
    end
  end
  if noted and status > 0 then
    --@include leases.unset
  end
end

--@section reset
-- Nothing goes unless all may: a log that is none is met before the hash is written.
-- While a slot moves, a command on a log and what is not beside it would be refused.
pos = pos + 41 * policies
for p = 1, policies do
  local kind, log, e, what = kinds[p], logs[p]
  if log then
    --@choose reset
    end
    if type(e) ~= 'table' then e, what = nil, not may('UNLINK', log, log .. ':back') and 'UNLINK' end
  end
  if what then
    --@include errors.failed
  end
end
local field = try('HGET', key, 'leases')
if field then
  --@include leases.bump
end
local e, what = status == 0 and try('HDEL', key, unpack(args, names + 1, names + policies)), 'HDEL'
if type(e) == 'table' then
  --@include errors.failed
end
for p = 1, policies do
  if logs[p] and status == 0 then try('UNLINK', logs[p]) try('UNLINK', logs[p] .. ':back') end -- mutant: refused-reset-keeps-log
end
if lasting and status == 0 then try('HSET', key, 'leases', lasting) end
wrote, met = true, '\0'
