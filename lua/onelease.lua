-- The common settles and reserves in locals, as onepolicy has the common takes. These
-- are of one policy of a few words in the hash, or one SlidingLog. Whatever else is met
-- on the way is left to anygroup, which begins again: nothing was written.

--@section section
local done = false
if joint == 0 and shape == ONE_LEASE and (op == RESERVE or op == SETTLE) and groups == 1 and policies == 1 then
  local key, status, longer, sweep, ms, least = keys[k], 0, 0, false, 0, 0
  local hz, due, at, x, y, z, used, taken, own = 0, 0, now, 0, 0, 0, 0, 0, 4294967294
  local kind, limit, period, a, b, fill, count, cost, name, charged, kept, v, met, fresh, bad, size, after
  local lease, id, length, attempt, how, named, held, open, ends, costs, till, note, ttl, lasting, long
  local ahead, sum, log, less, writes, beside = false, 0, nil, false
  --@include leases.ask
  if op == RESERVE then
    kind, limit, period, a, b, fill, count, cost, after = parse('<BdddddI8d', blob, pos)
    name, done = args[names + 1], status == 0 and not named and count == 1 and cost > 0 and (kind < FIRST_PACKED or kind == SLIDINGLOG)
    if kind == SLIDINGLOG then log = keys[k + 2] end
  else
    --@include leases.find
    if open and #held > 64 then
      kind, size, period, a, b, fill, cost, charged, kept, after = parse('<BBI6I7I6I7I5I7I7', held, 18)
      name, done = string.sub(held, after), status == 0 and (kind < FIRST_PACKED or kind == SLIDINGLOG) and after + size == #held + 1
      local most = 68719476736
      if kind == SLIDINGLOG then log, most = key .. name, 1000000 end
      --@choose whole
      end
      limit = most
      taken = (how > 1 and parse('<d', blob, costs) or 0) - cost
      less = taken < 0
      done = done and taken + cost >= 0 and taken + cost <= limit and taken % 1 == 0
    end
  end
  if done then
    local field, gen, horizon = try('HGET', key, 'leases'), 0, 0
    if not log then v = try('HGET', key, name) end
    --@include leases.generation
    --@include check.range
    --@include kinds.view
    done = status == 0 and not beside and (op == RESERVE or gen == open)
    if not done then
    elseif op == SETTLE then
      if not less then taken = math.min(taken, math.max(0, 2 * limit - used)) end
      note, met, lasting = pack('<BBI7I4I4c16', 1, 2, till, length, open, attempt), '\0', nil
    elseif used + cost > limit then done = false
    else
      taken, met, charged = cost, log and pack('<Bdd', 1, used, x) or v or '\0', at
      --@choose kept
      else kept = 0 end
      if log then name = string.sub(log, #key + 1) end
      note = pack('<BBI7I4I4BBI6I7I6I7I5I7I7c0', 1, how > 3 and 3 or 1, till, length, gen, kind, #name, period, a, b, fill, cost % 1099511627776, charged, kept, name)
      --mutant:log-charge-without-field
      if log and lasting then done = may('HSET', key, 'leases', lasting) end
    end
  end
  if done then
    local had = used
    used = used + taken
    if less then
      local back = -taken
      if log then used, writes = had, {} end
      --@choose giveback
      end
      --mutant:give-back-in-part
      for i = 2, log and #writes or 0 do done = done and may(unpack(writes[i])) end
    elseif taken > 0 and not log then
      --@choose take
      end
    end
    --mutant:one-lease-sweeps
    if lasting then longer, sweep = math.max(longer, (parse('<I4', lasting, 2))), sweep or log end
    --@include expiry.lasts
    local e
    if status == 0 and done then
      if op == RESERVE then e = try('SET', lease, note, 'NX', 'PX', ttl) else e = try('SET', lease, note, 'PX', ttl) end
      done = e
    end
    if e and e.err then
      local what = 'SET'
      --@include errors.failed
    elseif e then
      wrote = true
      if log and less then
        for i = 1, #writes do
          local e, what = try(unpack(writes[i])), writes[i][1]
          if i == 1 and type(e) == 'table' then
            --@include errors.failed
            break
          end
        end
      elseif log and taken > 0 then
        --@include slidinglog.take
      end
      if log then name, fresh, lasting = 'leases', lasting, nil end
      if fresh and status == 0 then
        local e
        if lasting then e = try('HSET', key, name, fresh, 'leases', lasting) else e = try('HSET', key, name, fresh) end
        --@include expiry.stored
      end
      if status > 0 then
        --@include leases.unset
      end
    end
    if done then
      k, pos, holds = k + 2, costs + 8, true
      if log then k = k + 1 end
      --@include kinds.answer
    end
  end
end
if not done then
  --@include anygroup.section
end
