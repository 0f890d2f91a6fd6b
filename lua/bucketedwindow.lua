-- The twin of algo/rule/bucketedwindow.go. a is the number of buckets, b their
-- width; x is the newest bucket's start, y the start of the oldest that
-- counts. The ring's slot of the bucket that starts at s is
-- (s / width) mod (a + 1), five bytes each.
-- Kept: version, horizon, due, start, sum, the ring.

--@section range
if not (a >= 2 and a <= 240 and a % 1 == 0 and b == math.ceil(period / a)) then status = OUT_OF_RANGE end

--@section view
local ring = a + 1
y = at - at % b
if v and #v < 25 + 5 * ring then status = CORRUPT
elseif v then
  v = string.sub(v, 1, 25 + 5 * ring)
  local version, h, d, newest, sum = parse('<BI4I4dd', v)
  if version ~= 1 or not (newest >= 0 and newest <= 9007199254740992 and newest % b == 0 and sum >= 0 and sum <= 9007199254740992 and sum % 1 == 0) then status = CORRUPT
    newest, sum = 0, 0
  end
  if newest <= now + period then
    hz, due = h, d
    local oldest = math.max(0, newest - a * b)
    while oldest <= newest and oldest + b - 1 + period <= now do
      sum = sum - parse('<I5', v, 26 + 5 * (oldest / b % ring))
      oldest = oldest + b
    end
    --mutant:ring-adds-up
    if sum < 0 or sum > 0 and oldest > newest then status = CORRUPT
    elseif sum > 0 then used, x, y = sum, newest, oldest end
    if x > now then at = x end
  end
end

--@section release
if need > had then leaves = at - at % b
else
  leaves = y
  while leaves < x do
    need = need - parse('<I5', v, 26 + 5 * (leaves / b % (a + 1)))
    if need <= 0 then break end
    leaves = leaves + b
  end
end
leaves = leaves + b - 1 + period

--@section clear
-- Empty what no longer counts: the buckets before the oldest.
local from = math.max(0, x - a * b)
local count, slot = (y - from) / b, from / b % ring
while count > 0 do
  local run = math.min(count, ring - slot)
  v = string.sub(v, 1, 25 + 5 * slot) .. string.rep('\0', 5 * run) .. string.sub(v, 26 + 5 * (slot + run))
  count, slot = count - run, 0
end

--@section take
local ring, newest = a + 1, at - at % b
if had == 0 then v = string.rep('\0', 25 + 5 * ring)
else
  --@include bucketedwindow.clear
end
local slot = 26 + 5 * (newest / b % ring)
local count = parse('<I5', v, slot) + taken
local ends, spare = newest + b + period, period - b
--@include expiry.horizon
fresh = pack('<BI4I4dd', 1, hz, due, newest, used) .. string.sub(v, 26, slot - 1) .. pack('<I5', count) .. string.sub(v, slot + 5)

--@section giveback
-- Where the newest bucket is empty then, the one before it that is not is the
-- newest. The key is unused when its last unit has left. The ring's slots behind it
-- are empty, and so are the older buckets that they stand for then.
local bucket = charged - charged % b
local last = bucket
if had > 0 and bucket >= y and bucket <= x then
  --@include bucketedwindow.less
end

--@section returned
local bucket, last = x, y
--@include bucketedwindow.less

--@section less
-- Out of a bucket, and out of those before it down to the last one.
local ring, left = a + 1, had
repeat
  local slot = 26 + 5 * (bucket / b % ring)
  local count = parse('<I5', v, slot)
  local less = math.min(back, count)
  v = string.sub(v, 1, slot - 1) .. pack('<I5', count - less) .. string.sub(v, slot + 5)
  bucket, back, left = bucket - b, back - less, left - less
until back < 1 or bucket < last
--@include bucketedwindow.clear
--mutant:lua-give-back-newest
while left > 0 and parse('<I5', v, 26 + 5 * (x / b % ring)) == 0 do x = x - b end
fresh = pack('<BI4I4dd', 1, hz, due, x, left) .. string.sub(v, 26)

--@section unmoved
-- To write it would make the present bucket the newest.
fresh = plain

--@section told
if taken > 0 then newest = at - at % b end

--@section outlives
ends = last + period + b
