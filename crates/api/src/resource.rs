//! How a custom resource is declared: `resource!` makes the root type, [`CustomResource`] names it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A root type of one of Quintet's API groups, in one version.
pub trait CustomResource:
    k8s_openapi::Resource + k8s_openapi::Metadata<Ty = ObjectMeta> + schemars::JsonSchema
{
    /// Whether objects live in a namespace.
    const NAMESPACED: bool;
}

/// Declares the root type of a custom resource: always-present fields first, then those that may be absent.
///
/// Objects written by the type always say their `apiVersion` and `kind`. A `spec` that the API server lets
/// users leave out is marked `#[serde(default)]`.
///
/// Needs `k8s-openapi`, `schemars` and `serde` as dependencies of the crate that declares the type.
///
/// ```
/// quintet_api::resource! {
///     /// A greeting for one person.
///     Greeting in "demo.quintet.dev" "v1", namespaced "greetings" {
///         /// What is said.
///         spec: GreetingSpec,
///     }
/// }
///
/// /// What is said, and to whom.
/// #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
/// pub struct GreetingSpec {
///     /// To whom.
///     pub name: String,
/// }
/// ```
#[macro_export]
macro_rules! resource {
    (
        $(#[$attribute:meta])*
        $kind:ident in $group:literal $version:literal, $scope:ident $plural:literal {
            $( $(#[$field_attribute:meta])* $field:ident : $type:ty, )*
        }
        $( maybe { $( $(#[$maybe_attribute:meta])* $maybe_field:ident : $maybe_type:ty, )* } )?
    ) => {
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
        $(#[$attribute])*
        pub struct $kind {
            /// Name, namespace, labels and the like.
            #[serde(default)]
            #[schemars(schema_with = "quintet_api::schema::object_metadata")]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $( $(#[$field_attribute])* pub $field: $type, )*
            $( $( $(#[$maybe_attribute])* pub $maybe_field: Option<$maybe_type>, )* )?
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("apiVersion", <Self as k8s_openapi::Resource>::API_VERSION)?;
                map.serialize_entry("kind", <Self as k8s_openapi::Resource>::KIND)?;
                map.serialize_entry("metadata", &self.metadata)?;
                $( map.serialize_entry(stringify!($field), &self.$field)?; )*
                $( $(
                    if let Some(present) = &self.$maybe_field {
                        map.serialize_entry(stringify!($maybe_field), present)?;
                    }
                )* )?
                map.end()
            }
        }

        impl k8s_openapi::Resource for $kind {
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($kind);
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = $crate::resource!(@scope $scope);
        }

        impl k8s_openapi::Metadata for $kind {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }

        impl $crate::CustomResource for $kind {
            const NAMESPACED: bool = $crate::resource!(@namespaced $scope);
        }
    };
    (@scope namespaced) => { k8s_openapi::NamespaceResourceScope };
    (@scope cluster) => { k8s_openapi::ClusterResourceScope };
    (@namespaced namespaced) => { true };
    (@namespaced cluster) => { false };
}
pub(crate) use resource;
