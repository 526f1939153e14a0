//! Macros for types that stand for a text: enums with a word for each variant, and checked names.

/// Defines an enum whose variants have stable words, for stores, commands and JSON.
///
/// The names after the colon select the members: `as_str` returns the word, `ALL` lists the
/// variants in order, and `Display` writes the word.
macro_rules! words {
    (
        $(#[$of_enum:meta])*
        pub enum $name:ident: $($member:ident),+ {
            $($(#[$of_variant:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$of_enum])*
        pub enum $name {
            $($(#[$of_variant])* $variant,)+
        }
        words!(@each $name [$($member)+] [$($variant = $word)+]);
    };
    (@each $name:ident [$($member:ident)+] $words:tt) => {
        $(words!(@$member $name $words);)+
    };
    (@as_str $name:ident [$($variant:ident = $word:literal)+]) => {
        impl $name {
            /// Stable word of this variant.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
    (@ALL $name:ident [$($variant:ident = $word:literal)+]) => {
        impl $name {
            /// All variants, in the order of their definition.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];
        }
    };
    (@Display $name:ident $words:tt) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

/// Implements `as_str` and `Display` for a type that wraps a text.
macro_rules! as_text {
    ($name:ident) => {
        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
