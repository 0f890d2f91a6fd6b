-- The twin of algo/fixedwindow.go. x is the window's start, y its count.
-- Kept: version, horizon, start, count.

--@section view
local count = 0
if not v then
elseif #v < 25 then status = 67
else
  if #v > 25 then v = string.sub(v, 1, 25) end
  local version, h, start, c = parse('<Bddd', v)
  if version ~= 1 or not (h >= 0 and h <= 18014398509481984 and start >= 0 and start <= 9007199254740992 and c >= 0 and c <= 2147483648 and start % 1 + c % 1 == 0) then status = 67 end
  if start <= now + period then
    if start > now then at = math.max(now, start - start % period) end
    hz, x, count = h, start, c
  end
end
local window = at - at % period
if x >= window then y, used = count, count end
x = window

--@section take
y = y + taken
if x + period > hz then
  hz = x + period + period
  if hz > longer then longer = hz end
end
v = pack('<Bddd', 1, hz, x, y)
