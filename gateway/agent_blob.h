/* The agent (execd) that is linked into the gateway: deploy/agent_blob.S. */
#pragma once

extern const unsigned char agent_blob[];
extern const unsigned char agent_blob_end[];
