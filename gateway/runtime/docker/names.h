/* Names and labels of everything the Docker runtime makes. Labels only identify: the truth is in
 * the database. */
#pragma once

#define LABEL_INSTANCE "sandgate.instance" /* UUID of the gateway's database */
#define LABEL_ID "sandgate.id"             /* sandbox id */
#define LABEL_ROLE "sandgate.role"
#define LABEL_PUBLIC_ID "opensandbox.io/id" /* suites find containers by it (newest.md 1.1) */

#define ROLE_SANDBOX "sandbox"
#define ROLE_AGENT "agent" /* image, volume and short-lived helper container with execd */
#define ROLE_NETWORK "network"

#define SANDBOX_NAME "sandbox-" /* + id */
#define AGENT_REPO "sandgate-agent"
#define SNAPSHOT_REPO "opensandbox-snapshots" /* + ":" + snapshot id */
#define NETWORK_NAME "sandgate-"              /* + INSTANCE_SHORT digits of the instance */
#define BRIDGE_NAME "sg-"                     /* + the same; an interface name has 15 bytes */
#define NFT_TABLE "sandgate_"                 /* + the same */

enum { INSTANCE_SHORT = 8 };
