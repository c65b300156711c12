-- Facts about this database itself: 'instance' is the UUID that labels everything we make.
CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

-- One row per sandbox that exists or is being made or removed. A row is the intent: it is written
-- before the engine is touched and goes after the engine has forgotten the sandbox.
CREATE TABLE sandboxes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,      -- order of creation, tie-break of lists
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL COLLATE NOCASE,         -- domain/sandbox.h: enum sandbox_state
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    transition_ms INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,                -- wall clock, 0 = never
    image TEXT NOT NULL,
    entrypoint TEXT NOT NULL,                   -- JSON array of strings, as requested
    metadata TEXT NOT NULL,                     -- JSON object of strings
    extensions TEXT NOT NULL,                   -- JSON object of strings
    platform_os TEXT NOT NULL,                  -- '' = not requested
    platform_arch TEXT NOT NULL,
    token TEXT NOT NULL,                        -- of the agent
    address TEXT NOT NULL,                      -- where the gateway dials the agent
    agent_port INTEGER NOT NULL,
    host_address TEXT NOT NULL,                 -- where the agent is published, '' = nowhere
    host_port INTEGER NOT NULL
) STRICT;

CREATE INDEX sandboxes_by_age ON sandboxes (created_ms DESC, seq DESC);
CREATE INDEX sandboxes_by_expiry ON sandboxes (expires_ms) WHERE expires_ms > 0;

-- What became of sandboxes that are gone; kept for a while so that 404 can say why.
CREATE TABLE ended (
    id TEXT NOT NULL PRIMARY KEY,
    ended_ms INTEGER NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;

CREATE INDEX ended_by_time ON ended (ended_ms);
