# SPDX-License-Identifier: Apache-2.0
# serve: TLS --max-seqs 32 --max-queue 400
. "$CONFORMANCE/h2load/load.sh"
