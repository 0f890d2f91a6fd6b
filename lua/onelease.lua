-- The common settles and reserves in locals, as onepolicy has the common takes: of
-- one policy of a few words in the hash. Whatever else is met on the way is left to
-- anygroup, which begins again: nothing was written.

--@section section
local done = false
if shape == 4 and (op == 4 or op == 6) and groups == 1 and policies == 1 and string.byte(blob, from + 38 + string.byte(blob, from + 37)) < 32 then
  local key, status, longer, sweep, ms, small, least = keys[k], 0, 0, false, 0, 1, 0
  local hz, due, at, x, y, z, used, taken, own = 0, 0, now, 0, 0, 0, 0, 0, 4294967294
  local kind, limit, period, a, b, fill, count, cost, name, charged, kept, v, met, fresh, bad, size, after
  local lease, id, length, attempt, how, held, open, ends, costs, till, note, ttl, lasting, long
  --@include leases.ask
  if op == 4 then
    --@include leases.find
  end
  if op == 6 then
    kind, limit, period, a, b, fill, count, cost, after = parse('<BdddddI4d', blob, pos)
    name, done = args[names + 1], status == 0 and count == 1 and cost > 0
  elseif op == 4 and open and #held > 64 then
    kind, size, period, a, b, fill, cost, charged, kept, after = parse('<BBI6I7I6I7I5I7I7', held, 18)
    name, done, limit = string.sub(held, after), status == 0 and kind < 32 and after + size == #held + 1, 68719476736
  end
  if done then
    local values = try('HMGET', key, 'leases', name)
    local field, gen, horizon = values[1], 0, 0
    v = values[2]
    --@include leases.generation
    --@include kinds.range
    --@include kinds.view
    done = not values.err and status == 0 and (op == 6 or gen == open)
    if op == 4 then
      local actual = how > 1 and parse('<d', blob, costs) or 0
      done = done and actual >= 0 and actual <= 68719476736 and actual % 1 == 0
      taken, lasting = math.min(actual - cost, math.max(0, 137438953472 - used)), nil
      note, met = pack('<BBI7I4I4c16', 1, 2, ends, long, open, attempt), '\0'
    elseif used + cost > limit then done = false
    elseif done then
      taken, met, charged = cost, v or '\0', at
      --@choose kept
      else kept = 0 end
      note = pack('<BBI7I4I4BBI6I7I6I7I5I7I7', 1, 1, till, length, gen, kind, #name, period, a, b, fill, cost, charged, kept) .. name
    end
  end
  if done then
    local had = used
    used = used + taken
    if taken < 0 then
      local back = -taken
      --@choose giveback
      end
    elseif taken > 0 then
      --@choose take
      end
    end
    if lasting then longer = math.max(longer, (parse('<I4', lasting, 2))) end
    --@include expiry.lasts
    local e
    if status == 0 and op == 6 then
      e = try('SET', lease, note, 'NX', 'PX', ttl)
      done = e
    elseif status == 0 then e = try('SET', lease, note, 'KEEPTTL') end
    if e and e.err then
      local what = 'SET'
      note = nil
      --@include kinds.fails
    end
    if fresh and status == 0 and done then
      local e
      if lasting then e = try('HSET', key, name, fresh, 'leases', lasting) else e = try('HSET', key, name, fresh) end
      --@include expiry.stored
    end
    if note and status > 0 then
      --@include leases.unset
    end
    if done then
      k, pos = k + 2, costs + 8
      --@include kinds.answer
    end
  end
end
if not done then
  --@include anygroup.section
end
