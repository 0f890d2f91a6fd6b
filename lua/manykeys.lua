-- A request of several keys, which are decided all or nothing, or of several alternatives.

--@section joint
-- After a section of those that are decided all or nothing. All are looked at first,
-- and decided in a second pass if none was refused. Then nothing may fail any more:
-- the looks have asked for each right. The answers of both passes are equal. Where one
-- was refused there is no second pass, and the sections that follow are decided as ever.
joint = joint - 1
if joint == 0 and looks then
  --mutant:looks-end-with-their-keys
  looks = false
  --mutant:joint-all-or-nothing
  if not refused then
    joint, pos, k, n = unpack(again)
  end
end

--@section alternative
-- After an alternative, or FIRST itself: unless it was refused, those behind it are skipped.
firsts = firsts - 1
--mutant:lua-first-that-fits
if op ~= SETTLE and (stop or not refused) then firsts, pos, k = 0, skip, skipped end
refused, stop = false, false
