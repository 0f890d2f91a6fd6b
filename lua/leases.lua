-- Leases: what a Reserve charged, so that a settle can correct it. Each is a string
-- under a key of its own that leaves by itself, so no call ever prunes them.
--
-- Kept: version, state (1 open, 2 settled, 3 open and late), end in µs, for how many ms it
-- stays after the end, generation. An open
-- one then has for each policy: kind, length of the name, period, a, b, fill, what was
-- charged (mod 2^40). Then come the instant, what the kind needs beside (kept), and the
-- name. The name is that of a field, or what follows the hash's name in that of a log. A
-- kind plus 128 is a shadow that had no room, which no settle charges. A settled lease
-- has the attempt that settled it, and leaves one length after its end. A late one stays,
-- open or settled, for at least ten minutes. A tombstone is
-- one that was settled unresolved: it may never have been open.
--
-- The key's hash has the field leases: version, horizon in seconds (no record lives
-- longer), generation. It is written where a horizon must grow, and lives as long as
-- the hash: a sweep leaves what is shorter than a count. A list of logs sweeps where it writes it,
-- since it keeps the hash alive and writes no other field. A reset raises the
-- generation, and leases of another are not held. So a reset costs the same for one
-- lease and for a million.

--@section ask
-- ttl comes as text, for how long the record is needed and what a rounded clock needs.
-- To format a number costs the server as much as a command. A virtual clock may pass an
-- end of its own that the server's clock has not reached. What a settle leaves stays for
-- one length, so that it can be repeated. What an unresolved one leaves is a tombstone,
-- which stays for twice the length: without it a second settle would charge again.
lease = keys[k + 1]
id, length, attempt, how, ttl, pos = parse('<c16I4c16BBc0', blob, pos)
--mutant:lease-length-in-script
if length < 1000 or length > 86400000 then status = OUT_OF_RANGE end
--mutant:lua-unresolved-settle-stays
if op == SETTLE and how % 2 == 1 then length = math.max(length, 300000) end
costs, till = pos + 41 * policies + 8, (op ~= SETTLE or how % 2 == 1) and now + length * 1000 or now
named = how > 7
if named then how = how - 8 end
if op == RESERVE and how > 3 then length = math.max(length, 600000 - length) end
if usec == args[1] then ttl = 2 * length + slack end

--@section again
-- A Reserve under an ID of the caller's. An open lease stays as it was stored, if the list and the
-- costs are those of the lease: its end moves. Without a lease that stands this is a Reserve.
if not open and parse('>I8', held, 18) < parse('>I8', attempt) or open and now >= ends then held = false
elseif open then
  local i, p = 18, 0
  while i <= #held and p >= 0 do
    p = p + 1
    local kind, size, _, cost, kept, after
    if #held >= i + 46 and p <= policies then kind, size, _, _, _, _, cost, _, kept, after = parse('<BBI6I7I6I7I5I7I7', held, i) end
    local most = 0
    if kind and kind % SPARED == kinds[p] then
      i = after + size
      --@choose whole
      end
    else kind = 256 end
    local other = kind > 255 or string.sub(held, after, i - 1) ~= (logs[p] and string.sub(logs[p], #key + 1) or args[names + p])
    --mutant:lua-reserved-as-before
    if other or kind < SPARED and cost ~= parse('<d', blob, costs + 8 * (p - 1)) then p = -1 end
  end
  if p ~= policies then status = OUT_OF_RANGE end
  --@include leases.extend
  met, asks = string.char(HELD), EXTEND
end

--@section find
-- held is what stands under the lease's key and has not left.
held = try('GET', lease)
if held and held.err then
  local e, what = held, 'GET'
  --@include errors.failed
  held = false
elseif held and #held < 33 then status, held = CORRUPT, false
elseif held then
  local version, state
  version, state, ends, long, open = parse('<BBI7I4I4', held)
  if version ~= 1 or state < 1 or state > 3 then status = CORRUPT end
  ends = math.min(ends, now + long * 1000)
  if state == 2 then open = false end
  if now >= ends + long * 1000 then held, open = false, false
  --mutant:lua-late-lease-stays
  elseif state == 3 and (op ~= SETTLE or how % 2 == 0) then
    till = now + length * 1000
    length = math.max(length, 600000 - length)
    ttl = (till - now) / 1000 + length + slack
  end
end

--@section most
-- The greatest cost of a kind where it may be more than there is room for.
most = kind == INFLIGHT and 0 or kind > LAST_IN_HASH and 1000000 or 68719476736
--@choose most
end

--@section generation
-- Of field: gen, and lasting where a record of this length must live longer.
-- gen and horizon are 0 before.
if field and #field ~= 9 then status = CORRUPT
elseif field then
  local version
  version, horizon, gen = parse('<BI4I4', field)
  --mutant:garbage-generation
  if version ~= 1 then status = CORRUPT end
end
if horizon * 1000000 < now + 2000 * length then
  lasting = pack('<BI4I4', 1, math.min(math.ceil((now + 3000 * length) / 1000000), marks), gen)
end

--@section bump
if field.err then
  local e, what = field, 'HGET'
  --@include errors.failed
elseif #field ~= 9 then status = CORRUPT
else
  local version, horizon, gen = parse('<BI4I4', field)
  if version ~= 1 then status = CORRUPT
  elseif horizon * 1000000 > now then
    lasting = pack('<BI4I4', 1, horizon, (gen + 1) % 4294967296)
    if not may('HSET', key, 'leases', lasting) then
      local e, what = nil, 'HSET'
      --@include errors.failed
    end
  end
end

--@section reserve
local field, gen, horizon = hashed[1], 0, 0
if all * count ~= 1 then status = OUT_OF_RANGE
else
  --@include leases.generation
  note = pack('<BBI7I4I4', 1, how > 3 and 3 or 1, till, length, gen)
  for p, s in ipairs(states) do
    local kind, a, b, at, x, y, z, sum, taken, kept, name = s.kind, s.a, s.b, s.at, s.x, s.y, s.z, s.sum, s.cost, 0, s.name
    local charged = at
    if s.spared then kind, taken = kind + SPARED, 0 end
    --@choose kept
    end
    s.x, s.y, s.z, s.sum = x, y, z, sum
    if s.log then name = string.sub(s.log, #key + 1) end
    note = note .. pack('<BBI6I7I6I7I5I7I7c0', kind, #name, s.period, a, b, s.fill, taken % 1099511627776, charged, kept, name)
  end
end

--@section settle
-- By what the lease holds, whatever list the caller has.
if not held and how % 2 == 1 then
  -- The answer of the Reserve was lost, and it did not run, or not yet. It will find
  -- this. What was used is charged as a record: of alternatives that of the first one, if no
  -- lease was held.
  note = pack('<BBI7I4I4c16', 1, 2, till, length, 0, attempt)
  --mutant:lua-one-alternative-recorded
  if firsts == 0 or firsts <= recorded and not holds then asks = RECORD end
elseif not held or not open and (string.sub(held, 18, 33) ~= attempt or attempt == string.rep('\0', 16)) then
  if status == 0 then status = NOT_HELD end
elseif open then
  --@include leases.read
  if how > 1 and reserved ~= policies and status == 0 then status = OUT_OF_RANGE end
  for p = 1, status == 0 and #states or 0 do
    local s = states[p]
    local kind, limit, period, a, b, fill, cost, least = s.kind, 68719476736, s.period, s.a, s.b, s.fill, 0, 0
    local hz, due, at, x, y, z, used = 0, 0, now, 0, 0, 0, 0
    local ahead, sum, log, v, most, actual = false, 0, s.log, hashed[p + 1], 0, 0
    local charged, kept = s.charged, s.kept
    -- Where the caller has the policy, its numbers may be newer than the lease's. Where it
    -- has not, a period that has ended since is not corrected.
    local listed = false
    for q = 1, policies do
      if s.name == args[names + q] then
        listed = true
        --@choose renewed
        end
      end
    end
    --mutant:lua-slot-of-lease
    if how > 1 and status == 0 and kind ~= INFLIGHT then actual = parse('<d', blob, costs + 8 * (s.place - 1)) end
    less = actual < s.cost
    --@include leases.most
    if not (actual >= 0 and actual <= most and actual % 1 == 0) then status = OUT_OF_RANGE end
    local asked = status
    --@include lent.split
    --@include check.range
    --@include kinds.view
    if status == OUT_OF_RANGE and asked == 0 then status = CORRUPT end -- the lease's own numbers
    --mutant:unlisted-calendar-settles
    if status == OUTSIDE and not listed then status, actual = 0, s.cost end
    if log and actual < s.cost and status == 0 then
      local back = s.cost - actual
      --@choose giveback
      end
      actual = s.cost
    end
    --@include lent.log
    --mutant:excess-saturates
    local more = math.min(actual - s.cost, math.max(0, 2 * most - used - (log and lent or 0)))
    states[p] = {kind, 0, period, a, b, fill, hz, due, at, x, y, z, used + more, used, ahead, sum, log, v, 0, s.name, charged, kept}
    states[p].beside = beside
  end
  note, lasting = pack('<BBI7I4I4c16', 1, 2, till, length, open, attempt), nil
end
if held or status > 0 then holds = true end
if asks == SETTLE then pos = costs + 8 * policies end

--@section read
-- The policies of an open lease as states, and the hash's fields of them. Of a lease
-- that ended with a reset only the slots are freed.
local fields, i = {'leases'}, 18
states, small, reserved = {}, 0, 0
while i <= #held and status == 0 do
  if #held < i + 46 then status = CORRUPT break end
  local kind, size, period, a, b, fill, cost, charged, kept, after = parse('<BBI6I7I6I7I5I7I7', held, i)
  local name = string.sub(held, after, after + size - 1)
  i = after + size
  reserved = reserved + 1
  --mutant:lua-spared-shadow
  if kind > LAST_CHARGED then kind = nil end
  local most = 68719476736
  --@choose whole
  end
  --mutant:garbage-charge
  if cost > most or kind and kind > LAST_IN_HASH and cost > 1000000 or i > #held + 1 then status = CORRUPT end
  if kind then
    if kind < FIRST_WITH_KEY then small = small + 1 end
    fields[#fields + 1] = name
    states[#states + 1] = {kind, 0, period, a, b, fill, 0, 0, 0, 0, 0, 0, 0, 0, false, 0, kind > LAST_IN_HASH and key .. name, nil, cost, name, charged, kept, reserved}
  end
end
own = 4294967295 - small
hashed = try('HMGET', key, unpack(fields))
if hashed.err then
  local e, what = hashed, 'HMGET'
  --@include errors.failed
  hashed = {}
end
local field, gen, horizon = hashed[1], 0, 0
--@include leases.generation
if status == 0 and gen ~= open then
  status = NOT_HELD
  for _, s in ipairs(states) do
    --mutant:lua-extend-after-reset
    if s.kind == INFLIGHT and op == SETTLE then try('ZREM', s.log, id); wrote = true end
  end
  -- An unresolved settle that comes again must not find nothing.
  --mutant:lua-reset-leaves-tombstone
  if op == SETTLE and how % 2 == 1 then try('SET', lease, pack('<BBI7I4I4c16', 1, 2, till, length, 0, string.rep('\0', 16)), 'PX', ttl); wrote = true end
end

--@section extend
met, pos = '\0', costs + 8 * policies
if not open then
  if status == 0 then status = NOT_HELD end
else
  --@include leases.read
  if status == 0 and now >= ends then status = ENDED end
  for _, s in ipairs(states) do
    if s.kind == INFLIGHT and s.cost > 0 then
      local log = s.log
      --@include inflight.extend
    end
  end
  states = {}
  note = string.sub(held, 1, 2) .. pack('<I7I4', till, length) .. string.sub(held, 14)
end

--@section set
local noted = note and status == 0
if noted then
  local e = try('SET', lease, note, 'PX', ttl)
  if e.err then
    local what = 'SET'
    noted = false
    --@include errors.failed
  else wrote = true end
end

--@section unset
-- Of a count that was refused no lease stays. The right to delete one may be missing, so
-- until it expires a record stands there that has left: a settle may come before that.
--mutant:refused-lease-has-left
note = pack('<BBI7I4I4c16', 1, 2, 0, length, 0, attempt)
--mutant:refused-charge-keeps-lease
if held then try('SET', lease, held, 'PX', math.ceil((ends - now) / 1000) + long + slack) else try('SET', lease, note, 'PX', 1) end
