package features

import utilfeature "k8s.io/apiserver/pkg/util/feature"

// GateChanged is called after a spec has changed a gate, and after the change was undone.
var GateChanged = func() {}

// Gates returns all gates of Kueue with their values.
func Gates() map[string]bool {
	gates := map[string]bool{}
	for gate := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if _, isOwn := defaultVersionedFeatureGates[gate]; isOwn {
			gates[string(gate)] = Enabled(gate)
		}
	}
	return gates
}
