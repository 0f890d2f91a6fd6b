-- Decides groups of takes. A group is one key, the policies that count it and
-- its takes in order; all groups meet the same now.
--
-- The wire format. Numbers are packed, little-endian: B has 1 byte, H 2, I4 4, I8 8, d is a
-- double. A text stands behind its length, a B.
--
--   ARGV  [1] '' in production. A virtual clock's microseconds in the library's own tests.
--         [2] the sections, each for groups that ask alike, which most do in most services.
--         A section per such groups spares the server a string per group. Lua hashes every
--         byte of each: a fifth of what a group takes.
--         [3] and on: the fields' names, one for each policy.
--   KEYS  the keys of each group, group by group, by the shape of its section.
--
--   A section is H groups, B shape, B op, H policies, H runs, I4 behind which argument its
--   fields' names stand, and then what its shape has:
--
--   shape            the groups                           keys of a group     then
--   1 ONE_POLICY     one policy, one run                  hash or logs        policy, run
--   2 MANY_POLICIES  several policies in the hash, one    hash                each policy with
--                    call that costs something in each                        its d cost
--   3 ANY_POLICIES   any                                  hash if used, logs  policies, runs
--   4 ONE_LEASE      any, of a lease                      hash, lease, logs   lease, policies, runs
--   5                any, with the hash                   hash, logs          policies, runs
--   6 MANY_KEYS      the next sections, as many as it     none                nothing
--                    has groups, are decided all or
--                    nothing; each has one group and
--                    shape 3 or 4
--   7 A_LOAN         a Borrow                             hash, record, logs  loan, policies
--   8 FIRST          the next sections are alternatives,  none                a B for each
--                    as many as it has groups: each is a                      alternative
--                    section, or one of MANY_KEYS with its own
--
--   Of alternatives each is decided only if those before it have no room, as a request
--   of its own. In place of its policies FIRST has the number of all keys, and in place of its names
--   the bytes of all sections, by which what is left is skipped. A B is 1 if an alternative of
--   which nothing could be decided ends the request. Of leases to settle the sections come in
--   reverse order, and all are decided. In place of its runs FIRST has how many of the last
--   ones record what was used, if no lease is held.
--
--   The hash has a key's small states. Logs are one key for each log or InFlight, in the order
--   of the policies. The hash is used if a policy is of another kind. The parts of a section:
--
--   policy  B class * 16 + kind, + 64 of a shadow (shapes 3 to 5 and 7), d limit, d period,
--           d a, d b, d fill
--   run     I8 how many takes of these costs, of which as many pass as fit, d cost for each
--           policy. From MANY_CALLS on it is one take of so many calls more. A shadow's cost
--           is of one of them, and the shadow is charged the first that it has room for.
--   lease   16 bytes of its ID, I4 length in ms, 16 bytes of the attempt's ID, B 1 if it is
--           unresolved + 2 if costs are actual ones + 4 if late + 8 if named, text of how
--           many ms Redis is to keep it
--   loan    I4 term in us, I4 number, 8 bytes of an epoch, d want, d keep, d cost, B loans
--           that may be held, for each its I4 number and d units used, text of how many ms
--           Redis is to keep the borrower's record
--   op      its name in names.lua
--
--   reply one string: now as TIME's own seconds and microseconds in decimal, a
--         space between them, then for each group that was decided, for each
--         policy what it met:
--         class 1 (a few words in the hash): a byte 0 for nothing, else the
--         stored value (its first byte is its version, 1 to 31); class 2
--         (packed in the hash) and 3 (a key of its own): a byte 1, d used, d
--         newest; and then, run by run, for each policy of class 2 or 3 that
--         lacked room for the last call of the run, and can have it: d when it
--         will have it.
--         Before what a policy met stands what is lent of its count, if anything is: a
--         byte 31, B ends, for each d its instant, d units. A Borrow answers a byte 1, B
--         what became of the loan that was held (LOAN_ in names.lua), + LOAN_RECALLED. Then B
--         whether its cost passed, d units lent, d time until their end, d borrowers. For
--         each policy: B whether it had room for the cost, d units lent of a shadow, its
--         state, and d as above.
--         What was decided follows from that: the caller reckons it with the
--         twin of these rules. A group of which nothing was is one letter: R a
--         number is out of range (82), C a stored value is not ours (67), B now
--         lies outside of the boundaries that a Calendar was sent with (66), E
--         and a line of text, a command failed (69), N the lease is not held (78),
--         L it has ended (76), H it is held already, and its end was moved (72). A reset, a
--         settle and an extend are a byte 0.
--
-- The rules stand in a file an algorithm and are pasted in here: a function
-- call for each would cost more than what it does. All reads of a group come
-- before its first write. So a bad value or a server that refuses writes
-- leaves every count of the group as it was. No command after a group's first
-- write may raise an error, since that would be the answer to all groups.
--
-- The paths that most calls take stand first. Behind the 256th constant of a script, Lua
-- loads each number by an instruction of its own.
--
-- In the sections: v is the stored value; at the instant a take is recorded at.
-- A value of a hash begins with a version and two instants in whole seconds, so
-- that the hot path asks Redis for neither.
-- hz   until when the key is known to live, and the value is kept.
-- due  when a take is to sweep the hash: a field that no list has any more
--      must be removed also from a key that stays in use. If no other list of
--      policies has a field, due is own, which is never: above marks, less
--      small, the number of fields of the list.
-- What a later release adds behind a stored value is read past here, and lost
-- when this one writes. A value of another meaning has another version, and a
-- field of another name (algo.Kind.Mark): so two releases never read each
-- other's. Each counts by itself, as two limiters of different periods do, and a
-- key gets one fresh count when a release replaces the other. A value of a wrong
-- version in a field is not ours: 67.

-- Each name that a server may lack is used here, before the first read. So an error of one
-- has counted nothing.
local keys, args, parse, pack, try, may = KEYS, ARGV, struct.unpack, struct.pack, redis.pcall, redis.acl_check_cmd
if not (may and unpack and math.frexp) then return redis.error_reply('ERR nonexistent global variable: unpack, math.frexp or redis.acl_check_cmd') end
local sec, usec, slack, marks, wrote = '0', args[1], 3600000, 4294967000, false
if usec == '' then
  local t = try('TIME')
  if t.err then return redis.error_reply('NOPERM TIME: ' .. t.err) end
  sec, usec, slack = t[1], t[2], 10000
end
local now = sec * 1000000 + usec

-- The reply: in one piece where one key is asked for, else its pieces, joined
-- once. A string that grows by a group would be copied for each (measured: 128
-- groups at 4.7 us each instead of 2.5). A table costs a lone call 0.5 us.
local blob, pos, k = args[2], 1, 1
local alone, reply, n = #keys == 1 or #keys == 2 and string.byte(blob, 3) == ONE_LEASE or #keys == 2 and string.byte(blob, 3) == A_LOAN, '', 0
if not alone then reply, n = {sec, ' ', usec}, 3 end
-- joint: how many sections are still to come of those that are decided all or
-- nothing; again: where the first began. Of these, looks says that it is the first
-- of two passes, and refused that one of them can't pass.
local size, joint, looks, refused, again = #blob, 0, false, false
-- decided: how many groups of a section are; general: the next one has units lent.
local decided, general = 0, false
-- firsts is how many alternatives are still to come, with the present one. recorded and flags are as
-- FIRST has them. skip and skipped are the pos and k behind all of them. stop is that no later one
-- is decided. holds is that one of the leases to settle is held, or may be.
local firsts, recorded, flags, skip, skipped, stop, holds = 0, 0, '', 0, 0, false, false
while pos <= size do
  local section = pos
  local total, shape, op, policies, all, names, from = parse('<HBBHHI4', blob, pos)
  --mutant:section-without-groups
  pos = from
  local takes, own, groups = op == TAKE, 4294967295 - policies, total - decided
  if shape == ONE_POLICY and not general then
    --@include onepolicy.section
  elseif shape == MANY_POLICIES and not general then
    --@include manypolicies.section
  elseif shape == MANY_KEYS then
    joint, looks, refused, again = groups, true, false, {groups, pos, k, n}
  elseif shape == FIRST then
    pos, firsts, recorded, refused, stop, holds = from + groups, groups + 1, all, true, false, false
    flags, skip, skipped = string.sub(blob, from, pos - 1), pos + names, k + policies
  elseif shape == A_LOAN then
    --@include borrow.section
  else
    local whole, behind
    if general then
      --@include lent.general
    end
    --@include onelease.section
    if joint > 0 then
      --@include manykeys.joint
    end
    if general then
      --@include lent.decided
    end
  end
  if firsts > 0 and joint == 0 and not general then
    --@include manykeys.alternative
  end
end
if alone then return reply end
--mutant:refused-set-silent
return table.concat(reply, '', 1, n)
