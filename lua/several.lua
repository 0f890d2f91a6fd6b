-- A section of groups of several policies, each decided together. What the
-- one-policy path keeps in locals is kept in one table a policy.

--@section section
for _ = 1, groups do
  local states, status, runs = {}, 0, all
  pos = from
  local key, hashed, has, kinds = keys[k], nil, false, {}
  for p = 1, policies do
    kinds[p] = string.byte(blob, pos + 41 * (p - 1))
    if kinds[p] ~= 5 then has = true end
  end
  if has then
    k = k + 1
    if op ~= 5 then hashed = try('HMGET', key, unpack(args, names + 1, names + policies)) end
    if hashed and hashed.err then
      if string.sub(hashed.err, 1, 9) ~= 'WRONGTYPE' then return hashed end
      hashed, status = {}, 67
    end
  end
  local logs = {}
  for p = 1, policies do
    if kinds[p] == 5 then logs[p] = keys[k]; k = k + 1 end
  end
  if op == 5 then
    pos = pos + 41 * policies
    -- Nothing goes unless all may: a log that is none is met before the hash is
    -- written.
    for p = 1, policies do
      local held = logs[p] and try('ZCARD', logs[p])
      if type(held) == 'table' then
        if string.sub(held.err, 1, 9) ~= 'WRONGTYPE' then return held end
        status = 67
      end
    end
    local gone = has and status == 0 and try('HDEL', key, unpack(args, names + 1, names + policies))
    if type(gone) == 'table' then
      if string.sub(gone.err, 1, 9) ~= 'WRONGTYPE' then return gone end
      status = 67
    end
    for p = 1, policies do
      if logs[p] and status == 0 then call('UNLINK', logs[p]) end
    end
    --@include each.refuse
  else
    local met = ''
    for p = 1, policies do
      local kind, limit, period, a, b, fill
      kind, limit, period, a, b, fill, pos = parse('<Bddddd', blob, pos)
      local hz, at, x, y, z, used = 0, now, 0, 0, 0, 0
      local ahead, sum, log, v = false, 0, logs[p], hashed and hashed[p]
      local cost = least
      --@include each.range
      --@include each.view
      if kind > 3 then met = met .. pack('<Bdd', 1, used, x) else met = met .. (v or '\0') end
      states[p] = {kind, limit, period, a, b, fill, hz, 0, at, x, y, z, used, used, ahead, sum, log, v, 0}
    end
    for run = 1, runs do
      local count = parse('<I4', blob, pos)
      local pass, costs = count, pos + 4
      pos = costs
      for p = 1, policies do
        local s, cost = states[p]
        cost, pos = parse('<d', blob, pos)
        if not (cost >= least and cost <= s[2] and cost % 1 == 0) then status, cost = 82, 1 end
        if s[13] + (op == 1 and cost * pass or cost) > s[2] then pass = math.max(0, math.floor((s[2] - s[13]) / cost)) end
        s[19] = cost
      end
      for p = 1, policies do
        local s = states[p]
        local kind, limit, cost = s[1], s[2], s[19]
        if op == 1 then s[13] = s[13] + pass * cost end
        local need = s[13] + cost - limit
        if pass < count and kind > 3 and need > 0 and status == 0 then
          local leaves
          local period, a, b, at, x, y, z, had, sum, log, v = s[3], s[4], s[5], s[9], s[10], s[11], s[12], s[14], s[16], s[17], s[18]
          --@include each.release
          met = met .. pack('<d', leaves or 0)
        end
      end
    end
    if status > 0 then
      --@include each.refuse
    else
      --@include each.answer
      local longer = 0
      if op == 1 and states[1][13] == states[1][14] then
        for p = 1, policies do
          local s = states[p]
          local kind, period, b, fill, hz, at, x, log = s[1], s[3], s[5], s[6], s[7], s[9], s[10], s[17]
          if s[14] > 0 then
            --@include each.keep
          end
        end
        --@include each.lasts
        --@include each.expire
      elseif op == 1 then
        local fields = {}
        if next(logs) then
          -- Two keys are written: no right may be found missing between them.
          if has and not redis.acl_check_cmd('HSET', key, 'f', 'v') then return redis.error_reply('ERR no right to call HSET') end
          for p = 1, policies do
            if logs[p] and not redis.acl_check_cmd('ZADD', logs[p], 1, 'm') then return redis.error_reply('ERR no right to call ZADD') end
          end
        end
        for p = 1, policies do
          local s = states[p]
          local kind, period, a, b, fill = s[1], s[3], s[4], s[5], s[6]
          local hz, at, x, y, z, used, had, ahead, sum, log, v = s[7], s[9], s[10], s[11], s[12], s[13], s[14], s[15], s[16], s[17], s[18]
          local taken = used - had
          --@include each.take
          if kind < 5 then
            fields[#fields + 1] = args[names + p]
            fields[#fields + 1] = v
          end
        end
        if has then
          --@include each.lasts
          call('HSET', key, unpack(fields))
          --@include each.expire
        end
      end
    end
  end
end
