-- What the error of a command means to a group, and to the others of its run.

--@section failed
-- A read, or the group's first write, failed: nothing of the group is stored.
-- what is the command, e its error, or nil where the right to it is missing. A
-- missing right concerns only this group. An error that begins with another word
-- (OOM, READONLY) concerns all groups. Redis makes it for a script's first write
-- only, so it is returned where no group has written.
local err = e and e.err or 'ERR no right to it'
if string.find(err, '^WRONGTYPE') then status = math.max(status, CORRUPT)
elseif wrote or string.find(err, '^ERR') or string.find(err, '^NOPERM') then status, bad = FAILED, 'E' .. what .. ': ' .. err .. '\n'
else return e end
