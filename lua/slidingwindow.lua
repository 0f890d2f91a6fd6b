-- The twin of algo/rule/slidingwindow.go. x is the current bucket's start, y the
-- previous count, z the current one.
-- Kept: version, horizon, due, start, previous, current.

--@section view
local start = 0
if not v then
elseif #v < 33 then status = CORRUPT
else
  if #v > 33 then v = string.sub(v, 1, 33) end
  local version, h, d, st, prev, cur = parse('<BI4I4ddd', v)
  if version ~= 1 or not (st >= 0 and st <= 9007199254740992 and prev >= 0 and prev <= 137438953472 and cur >= 0 and cur <= 137438953472 and st % 1 + prev % 1 + cur % 1 == 0) then status = CORRUPT end
  if st <= now + period then
    if st > now then at = st end
    hz, due, start, y, z = h, d, st, prev, cur
  end
end
x = at - at % period
if start < x then
  if start >= x - period then y, z = z, 0 else y, z = 0, 0 end
end
used = z
if y > 0 then
  local m1, m2, m3 = period - (at - x), y, period
  --@include muldiv.muldiv
  used = q + z
end

--@section take
z = z + taken
local ends, spare = x + period + period, period < 10000000 and period or 10000000
--@include expiry.horizon
fresh = pack('<BI4I4ddd', 1, hz, due, x, y, z)

--@section giveback
-- The bucket that was charged may be the previous one by now.
local bucket = charged - charged % period
if bucket == x and z > 0 then z = math.max(0, z - back)
--mutant:lua-give-back-previous
elseif bucket == x - period and y > 0 then y = math.max(0, y - back)
else back = 0 end
if back > 0 then fresh = pack('<BI4I4ddd', 1, hz, due, x, y, z) end

--@section returned
-- What the current bucket has not, the previous one is to weigh less. Its count is the greatest
-- that does.
local less = math.min(back, z)
local weight = had - z - back + less
z = z - less
--mutant:lua-return-weighs
if back > less then
  local rest = period - (at - x)
  local m1, m2, m3 = period, weight + 1, rest
  --@include muldiv.muldiv
  y = q
  m1, m2, m3 = rest, y, period
  --@include muldiv.muldiv
  if q > weight then y = y - 1 end
end
fresh = pack('<BI4I4ddd', 1, hz, due, x, y, z)

--@section closes
closes = x + period

--@section told
size = 33
