-- A section of groups of one policy that ask for one thing, once or many times:
-- everything in locals. What its groups share is looked up once. To look up the field's
-- name for each took a fiftieth of a group's time.

--@section section
local kind, limit, period, a, b, fill, first, cost, behind = parse('<BdddddI8d', blob, from)
local field, hashed, least, status = args[names + 1], kind < FIRST_WITH_KEY, 2 - op, 0
local room = limit - (takes and first * cost or cost)
--@include check.range
local fit = status
pos = behind
for i = k, k + groups - 1 do
  local key, status, longer, sweep, ms, log, hz, due, at, x, y, z, used, sum = keys[i], fit, 0, false, 0, keys[i], 0, 0, now, 0, 0, 0, 0, 0
  local v, met, fresh, bad, ahead, leaves, part
  local lent, told, beside = 0, ''
  if hashed then v = try('HGET', key, field) end
  -- An error's table has no length; to ask every string for .err would go
  -- through the metatable of strings.
  if v and #v == 0 and v.err then
    local e, what = v, 'HGET'
    --@include errors.failed
    v = false
  end
  local whole = v
  repeat
    local again = false
    --@include kinds.view
    if status == CORRUPT and hashed and v and (string.byte(v) or 0) > 15 then
      --@include lent.part
    end
  until not again
  --mutant:lua-lent-log-met
  if beside then status, v = CORRUPT, beside end
  met = kind > LAST_OF_WORDS and pack('<Bdd', 1, used, x) or v or '\0'
  if part then met = told .. met end
  --mutant:lua-part-met
  local had, pass = used, used + lent > room and math.max(0, math.floor((limit - lent - used) / cost)) or first
  if pass < first and kind > LAST_OF_WORDS and status == 0 then
    local need = used + (takes and pass * cost or 0) + cost - limit
    if need > 0 then
      --@include kinds.release
    end
    met = met .. pack('<d', leaves or 0)
  end
  --mutant:peek-stores-nothing
  if takes and status == 0 then
    local taken = pass * cost
    used = used + taken
    --@include kinds.new
    --mutant:lua-denial-recalls
    if part and pass < first and used + cost <= limit then
      local beside = {nil, nil, nil, nil, parse('<I7I7', part, 20)}
      --@include lent.recall
      if due then
        part = string.sub(part, 1, 19) .. due .. string.sub(part, 34)
        --mutant:lua-recall-keeps-charges
        if not fresh then try('HSET', key, field, string.sub(whole, 1, 9) .. part .. string.sub(whole, 10 + #part)) end
      end
    end
    if fresh then
      if part then fresh = string.char(string.byte(fresh) + 16) .. string.sub(fresh, 2, 9) .. part .. string.sub(fresh, 10) end
      --@include expiry.lasts
    end
    if fresh and status == 0 then
      local e = try('HSET', key, field, fresh)
      --@include expiry.stored
    end
  end
  --@include lent.met
  if pass < first then refused = true end
  --@include kinds.answer
end
if not general then k, decided = k + groups, 0 end
