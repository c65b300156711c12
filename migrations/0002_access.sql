-- Seconds by which an access through the proxy renews the sandbox (extension
-- access.renew.extend.seconds); 0 = it does not.
ALTER TABLE sandboxes ADD COLUMN renew_s INTEGER NOT NULL DEFAULT 0;
-- What a caller of the proxy has to present in OpenSandbox-Secure-Access; '' = nothing.
ALTER TABLE sandboxes ADD COLUMN secure_token TEXT NOT NULL DEFAULT '';
-- Ports whose programs get Authorization and Cookie of proxied requests, as ",3000,8080,".
ALTER TABLE sandboxes ADD COLUMN login_ports TEXT NOT NULL DEFAULT '';

-- Ports of ours that lead to ports of sandboxes ([relay] in the configuration); they keep their
-- number over restarts and go with their sandbox.
CREATE TABLE relays (
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    port INTEGER NOT NULL,        -- in the sandbox
    listen_port INTEGER NOT NULL, -- ours
    PRIMARY KEY (sandbox_id, port)
) STRICT;
