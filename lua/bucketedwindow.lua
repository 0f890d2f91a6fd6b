-- The twin of algo/bucketedwindow.go. a is the number of buckets, b their
-- width; x is the newest bucket's start, y the start of the oldest that
-- counts. The ring's slot of the bucket that starts at s is
-- (s / width) mod (a + 1), four bytes each.
-- Kept: version, horizon, start, sum, width, the ring.

--@section view
local ring = a + 1
y = at - at % b
if v and (#v < 45 or #v % 4 ~= 1) then status = 67
elseif v then
  local version, h, newest, sum, width = parse('<Bdddd', v)
  if version ~= 1 or not (width >= 1 and width % 1 == 0 and newest >= 0 and newest <= 9007199254740992 and newest % width == 0 and h >= 0 and h <= 18014398509481984 and sum >= 0 and sum <= 9007199254740992 and sum % 1 == 0) then status = 67
    newest, sum = 0, 0
  end
  if newest <= now + period then
    hz = h
    if width ~= b or #v ~= 33 + 4 * ring then
      -- Another shape wrote it: all that it counted lies in one bucket, the
      -- one that holds the newest instant which it can have come from.
      newest = math.max(newest, math.min(now, newest + width - 1))
      newest = newest - newest % b
      if sum > 0 and newest + b - 1 + period > now then
        used, x, y, z = sum, newest, newest, 1
      end
    else
      local oldest = math.max(0, newest - a * b)
      while oldest <= newest and oldest + b - 1 + period <= now do
        sum = sum - parse('<I4', v, 34 + 4 * (oldest / b % ring))
        oldest = oldest + b
      end
      if sum < 0 or sum > 0 and oldest > newest then status = 67
      elseif sum > 0 then used, x, y = sum, newest, oldest end
    end
    if x > now then at = x end
  end
end

--@section release
-- leaves = when the oldest units, need of them, have left.
if need > had or z == 1 then leaves = at - at % b
  if need <= had then leaves = x end
else
  leaves = y
  while leaves < x do
    need = need - parse('<I4', v, 34 + 4 * (leaves / b % (a + 1)))
    if need <= 0 then break end
    leaves = leaves + b
  end
end
leaves = leaves + b - 1 + period

--@section take
local ring, newest = a + 1, at - at % b
if had == 0 or z == 1 then
  local held = string.rep('\0', 4 * ring)
  if had > 0 then
    local slot = 4 * (x / b % ring)
    held = string.sub(held, 1, slot) .. pack('<I4', had) .. string.sub(held, slot + 5)
  end
  v = string.rep('\0', 33) .. held
else
  -- Empty what no longer counts: the buckets before the oldest.
  local _, _, stored = parse('<Bdd', v)
  local from = math.max(0, stored - a * b)
  local count, slot = (y - from) / b, from / b % ring
  while count > 0 do
    local run = math.min(count, ring - slot)
    v = string.sub(v, 1, 33 + 4 * slot) .. string.rep('\0', 4 * run) .. string.sub(v, 34 + 4 * (slot + run))
    count, slot = count - run, 0
  end
end
local slot = 34 + 4 * (newest / b % ring)
local count = parse('<I4', v, slot) + taken
local ends = newest + b + period
if ends > hz then
  hz = ends + period
  if hz > longer then longer = hz end
end
v = pack('<Bdddd', 1, hz, newest, used, b) .. string.sub(v, 34, slot - 1) .. pack('<I4', count) .. string.sub(v, slot + 4)
