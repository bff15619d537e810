// The thread of this process that talks to the cluster (cache/tier/cluster/cluster_client.h). It
// blocks all signals and has its own fd table, so the host can neither close its sockets nor pass
// them to a child. Thread-safe.
#pragma once

#include "cache/tier/cluster/cluster_client.h"

namespace cube::prefetch {

// Starts the thread if it is neither running nor starting. If no thread can be started, the client
// stops permanently; the log says why.
void start_cluster_thread(cache::ClusterClient& client, cache::OfferSource& source);

}  // namespace cube::prefetch
