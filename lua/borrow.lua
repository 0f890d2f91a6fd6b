-- A Borrow: settles what the borrower holds of a key, takes, and lends. It is the twin
-- of backend/memory's loan.go.
--
-- Kept under a key of the borrower's, which leaves by itself. In this order: version,
-- number of the last Borrow, when it was counted as a borrower, until when this is kept.
-- Then the number of the Borrow whose loan it holds (0: none), and that of policies.
-- For each policy the end, the units and the epoch of the count at the time.

--@section section
local key, record, status, longer, sweep, ms, bad, met = keys[k], keys[k + 1], 0, 0, false, 0, nil, ''
local own, states, min, max = 4294967295 - policies, {}, math.min, math.max
local term, number, epoch, want, keep, cost, ttl, some
term, number, epoch, want, keep, cost, some, pos = parse('<I4I4c8dddB', blob, pos)
local asked, held = pos, try('GET', record)
pos = pos + HELD_SIZE * some
ttl, pos = parse('<Bc0', blob, pos)
k = k + 2
if usec == args[1] then ttl = 2 * term / 1000 + 10000 + slack end
if held and held.err then
  local e, what = held, 'GET'
  --@include errors.failed
  held = false
end
if not (term >= SHORTEST_TERM and term <= LONGEST_TERM and want >= 0 and want <= GREATEST_LIMIT and keep >= 0 and keep <= GREATEST_LIMIT and want % 1 + keep % 1 == 0) then status = OUT_OF_RANGE end
local hashed = try('HMGET', key, unpack(args, names + 1, names + policies))
if hashed.err then
  local e, what = hashed, 'HMGET'
  --@include errors.failed
  hashed = {}
end
for p = 1, policies do
  local kind, limit, period, a, b, fill, shadow, _
  kind, limit, period, a, b, fill, pos = parse('<Bddddd', blob, pos)
  if kind > LAST_KIND then kind, shadow = kind - SHADOW, true end
  local hz, due, at, x, y, z, used, least = 0, 0, now, 0, 0, 0, 0, 0
  local ahead, sum, v, log, closes = false, 0, hashed[p]
  local most, plain = cost
  if kind == INFLIGHT or kind == LEAKYQUEUE then status = OUT_OF_RANGE end
  if kind > LAST_IN_HASH then log, k = keys[k], k + 1 end
  --@include lent.split
  plain = v
  --@include borrow.range
  --@include kinds.view
  --@include lent.log
  --@choose closes
  end
  -- All slots at once: a table that grows by single slots is copied for each.
  states[p] = {kind, limit, period, a, b, fill, hz, due, at, x, y, z, used, used, ahead, sum, log, v, 0, args[names + p],
    false, 0, shadow, lent, beside or {epoch, 0, 0, 0, 0, 0, ended = {}, folded = 0}, plain, closes}
end
--@include borrow.settle
if status == 0 then
  --@include borrow.lend
  --@include borrow.store
end
--@include kinds.answer

--@section range
-- The cost of a shadow may be above its limit.
do
  local cost = shadow and 0 or cost
  --@include check.range
  if not (most >= 0 and most <= 999999999999999 and most % 1 == 0) then status = OUT_OF_RANGE end
end

--@section settle
-- how is what became of the loan that is held, by its name. s.charge is what is to be charged.
local counted, loan, parts, how, till = 0, 0, {}, some > 0 and LOAN_NOT_HELD or LOAN_UNNAMED, 0
if held and status == 0 then
  local version, last, size, behind
  if #held > 23 then version, last, counted, till, loan, size, behind = parse('<BI4I7I7I4B', held) end
  if version ~= 1 or #held ~= RECORD_HEAD + RECORD_PART * size then status = CORRUPT
  elseif till <= now then counted, loan = 0, 0
  elseif size ~= policies then status = OUT_OF_RANGE
  --mutant:lua-borrow-sent-twice
  elseif number <= last then status = NOT_HELD
  else
    for p = 1, size do
      parts[p] = {parse('<I7I5c8', held, behind)}
      behind = behind + RECORD_PART
    end
  end
end
local used
for i = asked, loan > 0 and status == 0 and asked + HELD_SIZE * some - HELD_SIZE or 0, HELD_SIZE do
  local sent, units = parse('<I4d', blob, i)
  if sent == loan then used = units end
end
if used then
  how = LOAN_CHARGED
  for p = 1, policies do
    local part = parts[p]
    --mutant:lua-settle-after-end
    if part[1] <= now then part.how = LOAN_ENDED
    --mutant:lua-reset-ends-loans
    elseif states[p].beside[1] ~= part[3] then part.how = LOAN_NOT_HELD end
    --mutant:lua-shadow-settles-nothing
    if not states[p].shadow then how = max(how, part.how or LOAN_CHARGED) end
  end
  -- The units to keep are in use meanwhile. If one enforced policy keeps none, the others charge them.
  --mutant:lua-kept-units-charged
  local charge = how == LOAN_CHARGED and used or used + keep
  for p = 1, policies do
    local s, part = states[p], parts[p]
    local lent = s.beside
    if not part.how then
      for i = 7, #lent, 3 do
        if lent[i] == part[1] then
          local units = lent[i + 2]
          s.stops, s.lent, lent[i + 2] = lent[i + 1], s.lent - min(units, part[2]), units - part[2]
          if lent[i + 2] <= 0 then
            table.remove(lent, i)
            table.remove(lent, i)
            table.remove(lent, i)
          end
          break
        end
      end
      local kind, most = s.kind
      --@include leases.most
      --mutant:lua-settle-saturates
      s.charge = max(0, min(charge, part[2], 2 * most - s.used - (s.log and s.lent or 0)))
    end
    if not s.shadow then keep = min(keep, max(0, part[2] - used)) end
  end
end
if how ~= LOAN_CHARGED then keep = 0 end

--@section lend
-- s.fits: the policy had room for the cost beside what is kept. s.ends: when its units end,
-- s.stops: when they are due.
local room, passes, left, borrowers, recalled = MOST_LENT, true, term, 1, 0
local _, grid = math.frexp(term / LEAST_GRID)
grid = LEAST_GRID * 2 ^ (grid - 3)
for p = 1, policies do
  local s = states[p]
  -- Of a shadow fewer units may have been lent than are kept, and none if its part has ended.
  s.keeps = keep
  if s.shadow and keep > 0 then s.keeps = parts[p].how and 0 or min(keep, max(0, parts[p][2] - used)) end
  s.fits = s.limit - s.used - s.lent - s.charge - s.keeps >= cost
  passes = passes and (s.fits or s.shadow)
end
for p = 1, policies do
  local s = states[p]
  if passes and s.fits then s.charge = s.charge + cost end
  local lent, ends = s.beside, now + MAX_TERMS * term
  if want > 0 then
    if now >= lent[2] + 2 * term or now < lent[2] then lent[2], lent[3], lent[4] = now - now % term, 0, 0
    elseif now >= lent[2] + term then lent[2], lent[3], lent[4] = now - now % term, 0, lent[3] end
    if counted < lent[2] or counted > now then lent[3] = min(lent[3] + 1, MOST_BORROWERS) end
  end
  ends = ends - ends % grid
  local stops = ends - (MAX_TERMS - 1) * term
  --mutant:lua-loan-ends-with-window
  if s.closes then ends, stops = min(ends, s.closes), min(stops, s.closes) end
  if not s.shadow then
    local left, beside, limit = s.limit - s.used - s.lent - s.charge, lent, s.limit
    --mutant:lua-borrow-recalls
    if not s.fits and s.used + s.charge + cost <= s.limit then
      --@include lent.recall
    end
    local above = now < lent[6] and lent[6] <= now + RECALL_STAYS and max(0, s.limit - lent[5]) or 0
    --mutant:lua-lent-is-bounded
    room = min(room, left - above, MOST_LENT - s.lent)
    --mutant:lua-recalled-ends
    if above > 0 and left - above < max(keep, 1) then
      recalled = LOAN_RECALLED
      if keep > 0 then ends, stops = min(ends, parts[p][1]), min(stops, s.stops or parts[p][1]) end
    end
  end
  s.ends, s.stops = ends, stops
  --mutant:lua-shadow-ends-no-loan
  if not s.shadow then borrowers, left = max(borrowers, lent[3], lent[4]), min(left, max(0, stops - now)) end
end
room = max(0, room)
local extra = min(want - keep, math.floor((room - keep) / (2 * borrowers)))
if extra < 0 or keep + extra < 2 and keep == 0 or left < term / 8 then extra = 0 end
local units = keep + extra
if want > 0 then counted = now end
-- The record's expiry moves once in RECORD_MOVES: to set it costs more than the value.
local kept = till - now - 2 * term
kept = held and kept >= RECORD_MOVES and kept <= RECORD_STAYS
if not kept then till = now + 2 * term + RECORD_STAYS end
local note = pack('<BI4I7I7I4B', 1, number, counted, till, units > 0 and number or 0, policies)
for p = 1, policies do
  local s = states[p]
  local m, lent, ends, i = units, s.beside, s.ends, 7
  if s.shadow then m = max(s.keeps, min(m, s.limit - s.used - s.lent - s.charge, MOST_LENT - s.lent)) end
  s.part = m
  note = note .. pack('<I7I5c8', ends, m, lent[1])
  while lent[i] and lent[i] < ends do i = i + 3 end
  if m > 0 and lent[i] == ends then lent[i + 1], lent[i + 2] = max(lent[i + 1], s.stops), lent[i + 2] + m
  elseif m > 0 then
    table.insert(lent, i, m)
    table.insert(lent, i, s.stops)
    table.insert(lent, i, ends)
  end
end

--@section store
-- The record is the first write, so the right to it is not asked for: nothing is stored if it
-- is refused.
local fields, noted, stored = {}, false, false
for p = 1, policies do
  local s = states[p]
  local kind, limit, period, a, b, fill = s.kind, s.limit, s.period, s.a, s.b, s.fill
  local hz, due, at, x, y, z, had, sum, v, taken, beside = s.hz, s.due, s.at, s.x, s.y, s.z, s.had, s.sum, s.v, s.charge, s.beside
  local used, fresh, op = had + taken, nil, 1
  local later = ''
  if not s.fits and kind > LAST_OF_WORDS and cost <= limit then
    local need, log, leaves = used + cost - limit, s.log
    if need > 0 then
      --@include lent.release
    end
    later = pack('<d', leaves or 0)
  end
  --mutant:lua-borrow-rounds
  local plain = taken == 0 and v and s.plain
  if plain then
    --@choose unmoved
    end
  end
  if not fresh and not s.log then
    --@choose take below 48
    end
  end
  --@include lent.tell
  local newest, size = x, 25
  --@choose told
  end
  if kind > LAST_OF_WORDS then before = before .. pack('<Bdd', 1, used, newest) else before = before .. string.sub(fresh, 1, size) end
  met = met .. string.char(s.fits and 1 or 0) .. (s.shadow and pack('<d', s.part) or '') .. before .. later
  if #beside > 6 and fresh then
    local last, units = beside[#beside - 2], 0
    for i = 9, #beside, 3 do units = units + beside[i] end
    local ends, spare = last + fill, 0
    --@choose outlives
    end
    local h, d = parse('<I4I4', fresh, 2)
    hz, due = h, d
    --@include expiry.horizon
    if hz ~= h or due ~= d then fresh = string.sub(fresh, 1, 1) .. pack('<I4I4', hz, due) .. string.sub(fresh, 10) end
  end
  --@include lent.join
  if fresh then
    fields[#fields + 1] = s.name
    fields[#fields + 1] = fresh
  else
    --@include borrow.rights
  end
end
--@include expiry.lasts
if status == 0 then
  local e, what = nil, 'SET'
  if kept then e = try('SET', record, note, 'KEEPTTL') else e = try('SET', record, note, 'PX', ttl) end
  if e.err then
    --@include errors.failed
  else noted, wrote = true, true end
end
if fields[1] and status == 0 then
  local e = try('HSET', key, unpack(fields))
  --@include expiry.stored
  stored = status == 0
end
for p = 1, policies do
  local s = states[p]
  local kind, period, at, y, z, ahead, sum, log, taken, beside = s.kind, s.period, s.at, s.y, s.z, s.ahead, s.sum, s.log, s.charge, s.beside
  if log and status == 0 then
    --@choose take
    end
    stored = stored or status == 0
  end
end
-- If a count was refused, nothing is lent of it. The record becomes as it was, or one that
-- has left: the right to delete it may be missing. If another count was written already, the
-- record names no loan, so what is lent is charged whole at its end.
--mutant:lua-refused-count-lends
if noted and status > 0 then
  if stored then try('SET', record, string.sub(note, 1, 19) .. '\0\0\0\0' .. string.sub(note, RECORD_HEAD), 'KEEPTTL')
  elseif held then try('SET', record, held, 'KEEPTTL')
  else try('SET', record, pack('<BI4I7I7I4B', 1, 0, 0, 0, 0, 0), 'PX', '1') end
end
met = pack('<BBBddd', 1, how + recalled, passes and 1 or 0, units, left, borrowers) .. met

--@section rights
-- The hash is written first, so no right of a log may be found missing after it.
local log, ahead, e, what = s.log, s.ahead
--@choose rights
end
if what then
  --@include errors.failed
end
