-- A virtual clock, for tests alone: the instant is the last argument, and the server's own clock removes nothing.
local now = tonumber(ARGV[#ARGV])

local function collect()
end
