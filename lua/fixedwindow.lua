-- The twin of algo/rule/fixedwindow.go. x is the window's start, y its count.
-- Kept: version, horizon, due, start, count.

--@section view
local count = 0
if not v then
elseif #v < 25 then status = CORRUPT
else
  if #v > 25 then v = string.sub(v, 1, 25) end
  local version, h, d, start, c = parse('<BI4I4dd', v)
  if version ~= 1 or not (start >= 0 and start <= 9007199254740992 and c >= 0 and c <= 1999999999999998 and start % 1 + c % 1 == 0) then status = CORRUPT end
  if start <= now + period then
    if start > now then at = start end
    hz, due, x, count = h, d, start, c
  end
end
local window = at - at % period
if x >= window then y, used = count, count end
x = window

--@section take
y = y + taken
local ends, spare = x + period, period
--@include expiry.horizon
fresh = pack('<BI4I4dd', 1, hz, due, x, y)

--@section most
most = 999999999999999

--@section kept
-- A lease has five bytes for what was charged. The bits above them are kept beside.
kept = (taken - taken % 1099511627776) / 1099511627776

--@section whole
--mutant:lua-large-lease
cost, most = cost + kept * 1099511627776, 999999999999999

--@section giveback
-- charged is the instant of the charge, kept what its lease keeps beside.
--mutant:lua-give-back-window
if y > 0 and x == charged - charged % period then
  y = math.max(0, y - back)
  fresh = pack('<BI4I4dd', 1, hz, due, x, y)
end

--@section returned
--@include fixedwindow.giveback

--@section closes
closes = x + period
