-- The twin of algo/fixedwindow.go. x is the window's start, y its count.
-- Kept: version, horizon, since, start, count.

--@section view
local count = 0
if v and #v ~= 33 then status = 1
elseif v then
  local version, h, s, start, c = parse('<Bdddd', v)
  if version ~= 1 or not (start >= 0 and c >= 0 and c <= 2147483648 and (start + c) % 1 == 0) then status = 1 end
  if start <= now + period then
    if start > now then at = math.max(now, start - start % period) end
    hz, since, x, count = h, s, start, c
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
v = pack('<Bdddd', 1, hz, since, x, y)
