-- The twin of algo/tokenbucket.go. x is the level at the instant at, in 2^-20
-- of a unit; a / b is how many of those leak a microsecond; fill is how long a
-- full bucket takes to be as new.
-- Kept: version, horizon, level, instant.

--@section view
if not v then
elseif #v < 25 then status = 67
else
  if #v > 25 then v = string.sub(v, 1, 25) end
  local version, h, level, t = parse('<Bddd', v)
  if version ~= 1 or not (h >= 0 and h <= 18014398509481984 and t <= 9007199254740992 and level >= 0 and level <= 2251799813685248 and t >= 0 and level % 1 + t % 1 == 0) then status = 67 end
  if t <= now + fill then
    hz = h
    if t > now then at = t end
    local m1, m2, m3 = at - t, a, b
    -- What would leak more than there is is not worked out exactly.
    if m1 / m3 * m2 > level + 1048576 then x = 0
    else
      --@include whole.muldiv
      if q < level then x = level - q end
    end
  end
end
-- Rounded up to whole units.
used = x + 1048575
used = (used - used % 1048576) / 1048576

--@section take
x = x + taken * 1048576
if at + fill > hz then
  hz = at + fill + fill
  if hz > longer then longer = hz end
end
v = pack('<Bddd', 1, hz, x, at)

--@section quick
-- What most takes meet, in fewer steps than view and take: a level that
-- is behind the clock and leaves room. Then fresh is what is to be stored, and
-- longer no less than how long the key has to live for it. Whatever else is left
-- to those.
local version, h, level, t = parse('<Bddd', v)
local q = (now - t) * a
if version == 1 and q >= 0 and q < 4503599627370496 and h >= 0 and h <= 18014398509481984 and level >= 0 and level <= 2251799813685248 and t >= 0 and level % 1 + t % 1 == 0 then
  q = q / b
  q = q - q % 1
  if q < level then level = level - q else level = 0 end
  if level <= room then
    if h < edge then
      h = edge + fill
      if h > longer then longer = h end
    end
    fresh = pack('<Bddd', 1, h, level + add, now)
  end
end
