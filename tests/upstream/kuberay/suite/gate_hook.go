package features

// GateChanged is called after a spec has changed a gate, and after the change was undone.
var GateChanged = func() {}
