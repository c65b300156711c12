-- Ended sandboxes stay in the table for a while, without their secrets, so that get, lists and
-- diagnostics can tell what became of them.
ALTER TABLE sandboxes ADD COLUMN ended_ms INTEGER NOT NULL DEFAULT 0;    -- wall clock, 0 = it exists
ALTER TABLE sandboxes ADD COLUMN exit_code INTEGER NOT NULL DEFAULT -1;  -- of its container, -1 = none known
ALTER TABLE sandboxes ADD COLUMN snapshot_id TEXT NOT NULL DEFAULT '';   -- made from it; then image is ''
ALTER TABLE sandboxes ADD COLUMN logs TEXT NOT NULL DEFAULT '';          -- its last output, once it ended

INSERT OR IGNORE INTO sandboxes
    (id, state, reason, message, transition_ms, created_ms, expires_ms, image, entrypoint, metadata,
     extensions, platform_os, platform_arch, token, address, agent_port, host_address, host_port,
     ended_ms)
    SELECT id, 'Terminated', reason, message, ended_ms, ended_ms, 0, '', '[]', '{}',
           '{}', '', '', '', '', 0, '', 0, ended_ms
    FROM ended;
DROP TABLE ended;

DROP INDEX sandboxes_by_age;
DROP INDEX sandboxes_by_expiry;
CREATE INDEX sandboxes_by_age ON sandboxes (created_ms DESC, seq DESC) WHERE ended_ms = 0;
CREATE INDEX sandboxes_by_age_all ON sandboxes (created_ms DESC, seq DESC);
CREATE INDEX sandboxes_by_expiry ON sandboxes (expires_ms) WHERE ended_ms = 0 AND expires_ms > 0;
CREATE INDEX sandboxes_by_end ON sandboxes (ended_ms) WHERE ended_ms > 0;
CREATE INDEX sandboxes_by_snapshot ON sandboxes (snapshot_id) WHERE snapshot_id <> '';
CREATE INDEX sandboxes_by_state ON sandboxes (state, created_ms DESC, seq DESC) WHERE ended_ms = 0;

-- Kept by the triggers below, of sandboxes that exist, so that a page of a list costs the same however
-- many there are: how many are in each state, and their metadata, newest first.
CREATE TABLE sandbox_counts (
    state TEXT NOT NULL PRIMARY KEY COLLATE NOCASE,
    n INTEGER NOT NULL
) STRICT;
CREATE TABLE labels (
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    made_ms INTEGER NOT NULL,     -- created_ms of the sandbox
    sandbox_seq INTEGER NOT NULL,
    PRIMARY KEY (key, value, made_ms, sandbox_seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_by_sandbox ON labels (sandbox_seq);
INSERT INTO sandbox_counts SELECT state, count(*) FROM sandboxes WHERE ended_ms = 0 GROUP BY state;
INSERT INTO labels SELECT m.key, m.value, s.created_ms, s.seq
    FROM sandboxes s, json_each(s.metadata) m WHERE s.ended_ms = 0 AND m.type = 'text';

CREATE TRIGGER sandboxes_added AFTER INSERT ON sandboxes WHEN NEW.ended_ms = 0 BEGIN
    INSERT INTO sandbox_counts VALUES (NEW.state, 1) ON CONFLICT (state) DO UPDATE SET n = n + 1;
    INSERT INTO labels SELECT m.key, m.value, NEW.created_ms, NEW.seq
        FROM json_each(NEW.metadata) m WHERE m.type = 'text';
END;
CREATE TRIGGER sandboxes_moved AFTER UPDATE OF state ON sandboxes
    WHEN OLD.ended_ms = 0 AND NEW.ended_ms = 0 AND OLD.state <> NEW.state BEGIN
    UPDATE sandbox_counts SET n = n - 1 WHERE state = OLD.state;
    INSERT INTO sandbox_counts VALUES (NEW.state, 1) ON CONFLICT (state) DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER sandboxes_relabelled AFTER UPDATE OF metadata ON sandboxes
    WHEN OLD.ended_ms = 0 AND NEW.ended_ms = 0 AND OLD.metadata <> NEW.metadata BEGIN
    DELETE FROM labels WHERE sandbox_seq = OLD.seq;
    INSERT INTO labels SELECT m.key, m.value, NEW.created_ms, NEW.seq
        FROM json_each(NEW.metadata) m WHERE m.type = 'text';
END;
CREATE TRIGGER sandboxes_ended AFTER UPDATE OF ended_ms ON sandboxes
    WHEN OLD.ended_ms = 0 AND NEW.ended_ms > 0 BEGIN
    UPDATE sandbox_counts SET n = n - 1 WHERE state = OLD.state;
    DELETE FROM labels WHERE sandbox_seq = OLD.seq;
END;
CREATE TRIGGER sandboxes_removed AFTER DELETE ON sandboxes WHEN OLD.ended_ms = 0 BEGIN
    UPDATE sandbox_counts SET n = n - 1 WHERE state = OLD.state;
    DELETE FROM labels WHERE sandbox_seq = OLD.seq;
END;

-- What happened to a sandbox, oldest first; goes with its row.
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    at_ms INTEGER NOT NULL,
    source TEXT NOT NULL,         -- 'lifecycle': a decision of ours; 'runtime': the engine's news
    type TEXT NOT NULL,           -- a state, or the engine's word
    reason TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_sandbox ON events (sandbox_id, seq);

-- Creates that carried an Idempotency-Key.
CREATE TABLE idempotency (
    key TEXT NOT NULL PRIMARY KEY,
    body_sha256 TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX idempotency_by_age ON idempotency (created_ms);
CREATE INDEX idempotency_by_sandbox ON idempotency (sandbox_id);

-- Named volumes that a sandbox's create made and that have to go: with the sandbox, or (keep = 1)
-- only if its create fails. Written before the volume is made.
CREATE TABLE volumes (
    name TEXT NOT NULL PRIMARY KEY,
    sandbox_id TEXT NOT NULL,
    keep INTEGER NOT NULL
) STRICT;
CREATE INDEX volumes_by_sandbox ON volumes (sandbox_id);

CREATE TABLE snapshots (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    sandbox_id TEXT NOT NULL,     -- the source; it may be gone
    name TEXT NOT NULL,           -- '' = none
    state TEXT NOT NULL,          -- gateway/snapshot.h: enum snapshot_state
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    transition_ms INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,  -- of what it adds to its base, 0 = unknown
    platform_os TEXT NOT NULL,    -- of the source, '' = not requested
    platform_arch TEXT NOT NULL
) STRICT;
CREATE INDEX snapshots_by_age ON snapshots (created_ms DESC, seq DESC);
CREATE INDEX snapshots_by_sandbox ON snapshots (sandbox_id);
CREATE INDEX snapshots_unfinished ON snapshots (seq) WHERE state IN ('Creating', 'Deleting');
