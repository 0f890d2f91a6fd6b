-- The twin of algo/fixedwindow.go. x is the window's start, y its count.
-- Kept: version, horizon, since, start, count.

--@section view
local count = 0
if v and #v ~= 33 then bad = true
elseif v then
  local version, h, s, start, c = struct.unpack('<Bdddd', v)
  if version ~= 1 or not (start >= 0 and start % 1 == 0 and c >= 0 and c <= 2147483648 and c % 1 == 0) then bad = true end
  if start <= now + period then
    if start > now then at = start end
    hz, since, x, count = h, s, start, c
  end
end
local window = at - at % period
if x < window then count = 0 end
x, y, used = window, count, count

--@section take
y = y + taken
if x + period > hz then hz = x + period + period; longer = hz end
v = struct.pack('<Bdddd', 1, hz, since, x, y)
