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
#define ROLE_VOLUME "volume" /* made for a sandbox that wanted it */

#define LABEL_SANDBOX "sandgate.sandbox" /* of a volume: for whom it was made */
#define LABEL_VOLUME_MANAGED                                                                       \
    "opensandbox.io/volume-managed-by"         /* "server": upstream's mark of the same */
#define VOLUME_UPSTREAM "opensandbox-runtime-" /* + id: volumes that upstream makes for itself */
#define VOLUME_UPSTREAM_OEM "opensandbox-win-oem-"

#define SANDBOX_NAME "sandbox-" /* + id */
#define AGENT_REPO "sandgate-agent"
#define SNAPSHOT_REPO "opensandbox-snapshots" /* + ":" + snapshot id */
#define NETWORK_NAME "sandgate-"              /* + INSTANCE_SHORT digits of the instance */
#define BRIDGE_NAME "sg-"                     /* + the same; an interface name has 15 bytes */
#define NFT_TABLE "sandgate_"                 /* + the same */

enum { INSTANCE_SHORT = 8 };
