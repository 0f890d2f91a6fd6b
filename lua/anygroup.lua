-- A section of groups of several policies, each decided together, and of all that
-- concerns leases and records. What the one-policy path keeps in locals is kept in
-- one table a policy.
--
-- The steps for each group:
--   leases.ask, leases.find   of shape ONE_LEASE: the lease's arguments and record
--   leases.settle or extend   replaces states by the policies of the lease
--   anygroup.reset            removes the counts
--   anygroup.decide           reads all values, then decides run by run in the tables
--   anygroup.store            asks for each right, then writes lease, logs and hash
--   kinds.answer              appends what each policy met
--
-- op is what the section asks for. asks is what is done: it differs for a settle that
-- finds no lease and charges as a RECORD. A state's slots are named in names.lua.
--
-- Invariants: every read comes before the first write. status is 0 until something is
-- wrong, and then nothing more is written. met grows in the order of the reply. Of
-- several keys (looks) the first pass writes nothing.

--@section section
for _ = 1, groups do
  local states, status, met, writes, ms, bad = {}, 0, '', {}, 0
  pos = from
  local asks, key, hashed, kinds, logs, shadows, small = op, keys[k], nil, {}, {}, {}, 0
  local lease, id, length, attempt, how, named, held, open, ends, note, ttl, lasting, till, costs, long, less, reserved, recalls
  if shape == ONE_LEASE then
    --@include leases.ask
    --@include leases.find
  end
  for p = 1, policies do
    kinds[p] = string.byte(blob, pos + 41 * (p - 1))
    if kinds[p] > LAST_KIND then kinds[p], shadows[p] = kinds[p] - SHADOW, true end
    if kinds[p] < FIRST_WITH_KEY then small = small + 1 end
  end
  local own = 4294967295 - small
  if small > 0 or shape > ANY_POLICIES then k = k + 1 end
  if lease then k = k + 1 end
  for p = 1, policies do
    if kinds[p] > LAST_IN_HASH then logs[p] = keys[k]; k = k + 1 end
  end
  if op == SETTLE then
    --@include leases.settle
  elseif op == EXTEND then
    --@include leases.extend
  elseif named and held and status == 0 then
    --@include leases.again
  end
  if op == RESET then
    --@include anygroup.reset
  elseif asks ~= EXTEND and (asks ~= op or op ~= SETTLE) then
    --@include anygroup.decide
  end
  if asks ~= PEEK and asks ~= RESET and status == 0 then
    --@include anygroup.store
  end
  if op == SETTLE then met = '\0' end
  --@include kinds.answer
end

--@section decide
-- shift: before the fields of the policies stands that of the leases.
local shift = asks == RESERVE and 1 or 0
--mutant:reserve-finds-lease
if asks == RESERVE and held and status == 0 then status = NOT_HELD end
if small + shift > 0 then
  if asks == RESERVE then hashed = try('HMGET', key, 'leases', unpack(args, names + 1, names + policies))
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
  --@include lent.log
  if beside and asks ~= RETURN then
    --@include lent.tell
    met = met .. before
  end
  if asks == RETURN then -- the reply has what stands afterwards
  elseif kind > LAST_OF_WORDS then met = met .. pack('<Bdd', 1, used, x) else met = met .. (v or '\0') end
  states[p] = {kind, limit, period, a, b, fill, hz, due, at, x, y, z, used, used, ahead, sum, log, v, 0, args[names + p]}
  -- What is lent is taken off the limit.
  --mutant:lua-lent-met
  if beside then states[p].beside, states[p].lent, states[p].limit = beside, lent, limit - lent end
end
for run = 1, all do
  -- calls: of a take that is one of many calls, which a shadow is charged by
  local count, calls = parse('<I8', blob, pos), 1
  if count > MANY_CALLS then count, calls = 1, count - MANY_CALLS end
  local pass, total = count, 0
  pos = pos + 8
  for p = 1, policies do
    local s, cost = states[p]
    local kind, most = s.kind, s.limit + (s.lent or 0)
    cost, pos = parse('<d', blob, pos)
    --mutant:lua-slot-recorded
    if op == SETTLE and kind == INFLIGHT then cost = 0 end
    if asks > EXTEND then
      --@include leases.most
    elseif kind == INFLIGHT then most = 1 end
    if not (cost >= 0 and (cost <= most or shadows[p] and kind ~= INFLIGHT) and cost % 1 == 0) then status, cost = OUT_OF_RANGE, 1 end
    -- Loans that have ended and are not stored yet are lent units still.
    --mutant:record-saturates
    if asks == RECORD then cost = math.max(0, math.min(cost, 2 * most - s.used - (s.log and s.lent or 0)))
    --mutant:lua-return-down-to-zero
    elseif asks == RETURN then cost = -math.min(cost, s.used)
    elseif shadows[p] then
    elseif s.used + (asks ~= PEEK and cost * pass or cost) > s.limit then pass = math.max(0, math.floor((s.limit - s.used) / cost)) end
    s.cost, total = cost, total + cost
  end
  if total == 0 and asks == TAKE then status = OUT_OF_RANGE end
  if pass < count then refused = true end
  -- A denied call that would pass if nothing were lent recalls the loans.
  for p = 1, pass < count and (asks == TAKE or asks == RESERVE) and policies or 0 do
    local s = states[p]
    local used = s.used + pass * s.cost + s.cost
    --mutant:lua-group-recalls
    if s.beside and not shadows[p] and used > s.limit and used <= s.limit + s.lent then
      local beside, cost, limit = s.beside, s.cost, s.limit + s.lent
      --@include lent.recall
      if due then s.recalls, recalls = due, true end
    end
  end
  for p = 1, policies do
    local s, charged, asked = states[p], pass, count
    local kind, limit, cost = s.kind, s.limit, s.cost
    -- A shadow charges the first of the calls that pass, as many as it has room for.
    if shadows[p] and asks < RECORD then
      charged, asked = pass * calls, count * calls
      --mutant:lua-shadow-room
      if s.used + (asks ~= PEEK and cost * charged or cost) > limit then charged = math.max(0, math.floor((limit - s.used) / cost)) end
      --mutant:lua-shadow-above-limit
      if cost > limit then charged = 0 end
      s.spared = charged < 1
    end
    if asks ~= PEEK then s.used = s.used + charged * cost end
    local need, lent = s.used + cost - limit, s.lent or 0
    if charged < asked and kind > LAST_OF_WORDS and need > 0 and cost <= limit + lent and status == 0 then
      local leaves
      need = need - lent
      local period, a, b, at, x, y, z, had, sum, log, v, beside = s.period, s.a, s.b, s.at, s.x, s.y, s.z, s.had, s.sum, s.log, s.v, s.beside
      if need > 0 then
        --@include lent.release
      end
      met = met .. pack('<d', leaves or 0)
    end
  end
  if asks == RESERVE and pass > 0 and status == 0 then
    --@include leases.reserve
  end
end
for p = 1, recalls and status == 0 and policies or 0 do
  local s = states[p]
  local kind, log, due, beside = s.kind, s.log, s.recalls, s.beside
  --mutant:lua-recall-stored
  if due then
    --@choose recall
    else try('HSET', key, s.name, string.sub(hashed[p + shift], 1, 28) .. due .. string.sub(hashed[p + shift], 43)) end
  end
end

--@section store
-- The lease is written first: what the server refuses for all, as for want of
-- memory, it refuses before a script's first write. Should a count be refused then,
-- the lease is set back. Where several keys are written, no right may be found
-- missing between them.
local fields, longer, sweep, parts = {}, 0, false, 0
for p, s in ipairs(states) do
  local kind, period, a, b, fill = s.kind, s.period, s.a, s.b, s.fill
  local hz, due, at, x, y, z, used, had, v, fresh = s.hz, s.due, s.at, s.x, s.y, s.z, s.used, s.had, s.v
  local taken, sum, log, ahead, beside = used - had, s.sum, s.log, s.ahead, s.beside
  if asks == RETURN then
    local back, charged, kept = -taken, at, sum
    --mutant:lua-ended-loan-returned
    if log and back > 0 and beside and beside.folded > 0 then
      --@include lent.returned
    end
    if back > 0 then
      --@choose returned
      end
    end
    --@include lent.tell
    local newest, size = x, 25
    --@choose told
    end
    if kind > LAST_OF_WORDS then met = met .. before .. pack('<Bdd', 1, used, used > 0 and newest or 0)
    else met = met .. before .. string.sub(fresh or v or '\0', 1, size) end
  elseif log then
    if taken > 0 then parts = parts + 1 end
  elseif taken < 0 then
    local back, charged, kept = -taken, s.charged, s.kept
    --@choose giveback
    end
  else
    --@include kinds.new
  end
  if beside then
    --@include lent.join
  end
  if fresh then
    fields[#fields + 1] = s.name
    fields[#fields + 1] = fresh
  end
end
if lasting then
  fields[#fields + 1] = 'leases'
  fields[#fields + 1] = lasting
  --mutant:leases-sweep
  longer, sweep = math.max(longer, (parse('<I4', lasting, 2))), sweep or small == 0
end
--@include expiry.lasts
parts = parts + #writes
if fields[1] then parts = parts + 1 end
--mutant:joint-rights
if (parts > 1 or looks) and status == 0 then
  local e, what
  if looks and note and not may('SET', lease, note) then what = 'SET' end
  if fields[1] and not may('HSET', key, 'f', 'v') then what = 'HSET' end
  for p, s in ipairs(states) do
    local kind, log, ahead, beside = s.kind, s.log, s.ahead, s.beside
    if log and s.used > s.had then
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
    local kind, period, at, y, z, ahead, sum, log, taken, beside = s.kind, s.period, s.at, s.y, s.z, s.ahead, s.sum, s.log, s.used - s.had, s.beside
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
  --mutant:refused-reset-keeps-log
  if logs[p] and status == 0 then try('UNLINK', logs[p]) try('UNLINK', logs[p] .. ':back') end
end
if lasting and status == 0 then try('HSET', key, 'leases', lasting) end
wrote, met = true, '\0'
