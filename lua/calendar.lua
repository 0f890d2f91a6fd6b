-- The twin of algo/rule/calendar.go. x is the period's start, y its end, z its count.
-- The caller sends three periods around its own now. These are the lengths of the one
-- before (period), the present one (b) and the next (fill), and where the present
-- one starts (a). Where none of them will do, nothing is decided: status 66, and
-- the caller sends those around the server's now.
-- Kept: version, horizon, due, start, end, count.

--@section range
if not (a >= -9007199254740992 and a <= 9007199254740992 and b >= 1000 and b <= 69120000000000 and fill >= 1000 and fill <= 69120000000000 and a % 1 + b % 1 + fill % 1 == 0) then status = OUT_OF_RANGE end

--@section view
if not v then
elseif #v < 33 then status = CORRUPT
else
  if #v > 33 then v = string.sub(v, 1, 33) end
  local version, h, d, start, ends, count = parse('<BI4I4ddd', v)
  if version ~= 1 or not (start >= 0 and ends > start and ends <= 9007199254740992 and count >= 0 and count <= 1999999999999998 and start % 1 + ends % 1 + count % 1 == 0) then status = CORRUPT end
  hz, due, x, y, z = h, d, start, ends, count
end
if x > now or now >= y then
  local from, to, after
  if now >= a then from, to, after = a, a + b, a + b + fill else from, to, after = a - period, a, a + b end
  if now >= to then from, to, after = to, after, nil end
  --mutant:outside-runs-nothing
  if now < from or not to or now >= to then
    if status == 0 then status = OUTSIDE end
  elseif x > now and x <= now + to - from then at = x
  else
    if x > now then hz, due, y = 0, 0, 0 end
    -- Where others' time zone data ended the last period late, what is left of
    -- this one may be short. It would be a limit of its own. So it joins the next.
    if y > 0 and 2 * (to - y) < to - from then
      to = after or y + 1
      if not after and status == 0 then status = OUTSIDE end
    end
    x, y, z = math.max(from, y), to, 0
  end
end
used = z

--@section take
z = z + taken
local ends, spare = y, math.min(y - x, 10000000)
--@include expiry.horizon
fresh = pack('<BI4I4ddd', 1, hz, due, x, y, z)

--@section most
most = 999999999999999

--@section kept
-- A lease has five bytes for what was charged. The bits above them are kept beside.
kept = (taken - taken % 1099511627776) / 1099511627776

--@section whole
cost, most = cost + kept * 1099511627776, 999999999999999

--@section giveback
--mutant:lua-give-back-period
if z > 0 and x <= charged and charged < y then
  z = math.max(0, z - back)
  fresh = pack('<BI4I4ddd', 1, hz, due, x, y, z)
end

--@section returned
--@include calendar.giveback

--@section renewed
-- The boundaries around now: those of the lease are of when it was reserved.
--mutant:lua-renewed-by-name
_, _, period, a, b, fill = parse('<Bddddd', blob, pos + 41 * (q - 1))

--@section closes
closes = y

--@section told
size = 33
