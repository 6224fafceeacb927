//! The words of Quintet: typed resources of every API group, their CRDs, conversions and quantities. No I/O.
