package main

import (
	"encoding/hex"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// An expression about a value, and what it evaluates to.
type expression struct {
	Text  string `json:"text"`
	Value any    `json:"value"`
	// Why it does not compile.
	Rejected string `json:"rejected,omitempty"`
	Error    string `json:"error,omitempty"`
	Result   string `json:"result,omitempty"`
}

const selfSchema = `{"type":"object","properties":{
	"n":{"type":"integer"},"m":{"type":"integer"},"d":{"type":"number"},"s":{"type":"string"},"t":{"type":"string"},"flag":{"type":"boolean"},
	"list":{"type":"array","items":{"type":"integer"}},
	"names":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
	"map":{"type":"object","additionalProperties":{"type":"integer"}},
	"items":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"v":{"type":"integer"}}}},
	"when":{"type":"string","format":"date-time"},"long":{"type":"string","format":"duration"},"data":{"type":"string","format":"byte"},
	"either":{"x-kubernetes-int-or-string":true},
	"namespace":{"type":"string"},"a-b":{"type":"string"},
	"inner":{"type":"object","properties":{"deep":{"type":"object","properties":{"n":{"type":"integer"}}}}}}}`

func recordExpression() func(*random) any {
	var external apiextensionsv1.JSONSchemaProps
	decode([]byte(selfSchema), &external)
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, &internal, nil); err != nil {
		panic(err)
	}
	structural := must(structuralschema.NewStructural(&internal))
	self := model.SchemaDeclType(structural, false).MaybeAssignTypeName("selfType")
	set := must(environment.MustBaseEnvSet(version.MajorMinor(1, 36)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable("self", self.CelType())},
		DeclTypes:         []*apiservercel.DeclType{self},
	}))
	env := set.NewExpressionsEnv()
	return func(r *random) any {
		for {
			// Some expressions panic in the interpreter: there is nothing to compare with.
			if recorded := evaluate(r, env, structural); !strings.HasPrefix(recorded.Error, "internal error") {
				return recorded
			}
		}
	}
}

func evaluate(r *random, env *cel.Env, structural *structuralschema.Structural) expression {
	value := r.selfValue()
	recorded := expression{Value: value, Text: pick(r, r.boolean, r.integer, r.text, r.double, r.integers, r.words, r.other)(3)}
	ast, issues := env.Compile(recorded.Text)
	if issues.Err() != nil {
		recorded.Rejected = issues.String()
		return recorded
	}
	program, err := env.Program(ast)
	if err != nil {
		recorded.Rejected = err.Error()
		return recorded
	}
	var read unstructured.Unstructured
	if err := read.UnmarshalJSON(must(jsonOf(object{"apiVersion": "v1", "kind": "X", "self": value}))); err != nil {
		panic(err)
	}
	result, _, err := program.Eval(map[string]any{"self": schemacel.UnstructuredToVal(read.Object["self"], structural)})
	if err != nil {
		recorded.Error = err.Error()
	} else {
		recorded.Result = render(result)
	}
	return recorded
}

func (r *random) selfValue() object {
	return r.thin(object{
		"n": r.IntN(6) - 2, "m": pick(r, 0, 1, 7, 100), "d": pick(r, 0.5, -1.25, 3, 1e10), "s": pick(r, "", "hello", "a,b,c", "Ünï", "10"), "t": pick(r, "l", "world", "1.5", "hello"),
		"flag": r.once(2), "list": pick[any](r, []any{}, []any{1, 2, 3}, []any{3, 1, 2, 1}), "names": pick[any](r, []any{}, []any{"a", "b"}, []any{"b", "a"}, []any{"x"}),
		"map":   pick[any](r, object{}, object{"x": 1, "y": 2}, object{"a": 5}),
		"items": pick[any](r, []any{}, []any{object{"name": "a", "v": 1}, object{"name": "b", "v": 2}}, []any{object{"name": "b"}}),
		"when":  pick(r, "2026-01-02T03:04:05Z", "2024-02-29T23:59:59.5Z"), "long": pick(r, "1h30m", "90s", "1.5s"), "data": pick(r, "AAEC", "aGVsbG8="),
		"either": pick[any](r, 1, "x"), "namespace": "ns", "a-b": "dash", "inner": object{"deep": object{"n": r.IntN(3)}},
	}, pick(r, 6, 1000), map[string]bool{"name": true}).(object)
}

func (r *random) boolean(depth int) string {
	simple := []func() string{
		func() string { return pick(r, "true", "false") },
		func() string { return "self.flag" },
		func() string {
			return "has(self." + pick(r, "n", "s", "list", "map", "items", "inner.deep", "inner.deep.n", "flag", "__namespace__", "a__dash__b", "either") + ")"
		},
	}
	if depth == 0 {
		return pick(r, simple...)()
	}
	d := depth - 1
	return pick(r,
		func() string { return r.boolean(0) },
		func() string { return "!" + r.paren(r.boolean(d)) },
		func() string { return r.paren(r.boolean(d) + pick(r, " && ", " || ") + r.boolean(d)) },
		func() string { return r.paren(r.integer(d) + r.comparison() + r.integer(d)) },
		func() string { return r.paren(r.text(d) + r.comparison() + r.text(d)) },
		func() string { return r.paren(r.double(d) + r.comparison() + r.double(d)) },
		func() string { return r.paren(r.integers(d) + pick(r, " == ", " != ") + r.integers(d)) },
		func() string { return r.paren(r.words(d) + pick(r, " == ", " != ") + r.words(d)) },
		func() string { return r.integer(d) + " in " + r.integers(d) },
		func() string { return r.text(d) + " in " + pick(r, r.words(d), "self.map") },
		func() string {
			return r.integers(d) + "." + pick(r, "all", "exists", "exists_one") + "(e, " + "e" + r.comparison() + r.integer(d) + ")"
		},
		func() string {
			return "self.items." + pick(r, "all", "exists", "exists_one") + "(i, " + pick(r, "i.v > 1", "i.name == 'a'", "has(i.v)", "i.name == "+r.text(d)) + ")"
		},
		func() string {
			return "self.map." + pick(r, "all", "exists") + pick(r, "(k, self.map[k] > 1)", "(k, v, v > 1)", "(k, k == 'x')")
		},
		func() string {
			return r.text(d) + "." + pick(r, "startsWith", "endsWith", "contains") + "(" + r.text(d) + ")"
		},
		func() string {
			return r.text(d) + ".matches(" + pick(r, "'^[a-z]+$'", "'l+'", "'[0-9]'", "''", "'(a|b),'") + ")"
		},
		func() string { return r.paren(r.boolean(d) + " ? " + r.boolean(d) + " : " + r.boolean(d)) },
		func() string { return pick(r, r.integers(d), r.words(d)) + ".isSorted()" },
		func() string {
			return "sets." + pick(r, "contains", "intersects", "equivalent") + "(" + r.integers(d) + ", " + r.integers(d) + ")"
		},
		func() string {
			return r.quantity() + "." + pick(r, "isGreaterThan", "isLessThan") + "(" + r.quantity() + ")"
		},
		func() string {
			return r.quantity() + "." + pick(r, "isInteger()", "asApproximateFloat() > 1.0")
		},
		func() string {
			return pick(r, "isQuantity", "isURL", "isIP", "isCIDR", "isSemver") + "(" + pick(r, r.text(d), "'1Gi'", "'https://a.b/c'", "'10.0.0.1'", "'10.0.0.0/8'", "'1.2.3'", "'::1'", "'fe80::1%eth0'", "'1.2'", "'/a'", "'1.2.3-rc.1+b'") + ")"
		},
		func() string {
			return "type(" + pick(r, r.integer(d), r.text(d), r.double(d), r.integers(d), "self.map", "self.when", "self.long", "self.data", "self.either") + ") == " + pick(r, "int", "string", "double", "list", "map", "bytes", "google.protobuf.Timestamp", "google.protobuf.Duration")
		},
		func() string { return "self.either == " + pick(r, "1", "'x'", "2") },
		func() string {
			return "self.?" + pick(r, "s", "n", "inner.?deep.?n", "list[?0]", "map[?'x']") + ".hasValue()"
		},
		func() string {
			return "format." + pick(r, "dns1123Label", "dns1123Subdomain", "qualifiedName", "labelValue", "uuid", "date", "uri") + "().validate(" + r.text(d) + ").hasValue()"
		},
		func() string {
			return "ip('10.0.0.1')." + pick(r, "isLoopback()", "isGlobalUnicast()", "family() == 4", "isUnspecified()")
		},
		func() string {
			return "cidr('10.0.0.0/8')." + pick(r, "containsIP('10.1.2.3')", "containsIP('11.1.2.3')", "containsCIDR('10.0.0.0/16')", "prefixLength() == 8")
		},
		func() string {
			return "semver('1.2.3')." + pick(r, "isLessThan", "isGreaterThan", "compareTo") + "(semver(" + pick(r, "'1.10.0'", "'1.2.3-rc.1'", "'1.2.3'") + "))" + pick(r, "", " == 0")
		},
	)()
}

func (r *random) comparison() string       { return pick(r, " == ", " != ", " < ", " <= ", " > ", " >= ") }
func (r *random) paren(text string) string { return "(" + text + ")" }
func (r *random) quantity() string {
	return "quantity(" + pick(r, "'1'", "'1Gi'", "'500m'", "'1e3'", "'2k'", "'-1'", "'0.5'") + ")" + pick(r, "", "", ".add(quantity('1'))", ".sub(quantity('1Ki'))", ".add(1)")
}

func (r *random) integer(depth int) string {
	if depth == 0 {
		return pick(r, "0", "1", "-1", "2", "7", "self.n", "self.m", "self.inner.deep.n", "9223372036854775807")
	}
	d := depth - 1
	return pick(r,
		func() string { return r.integer(0) },
		func() string {
			return r.paren(r.integer(d) + pick(r, " + ", " - ", " * ", " / ", " % ") + r.integer(d))
		},
		func() string { return "-" + r.paren(r.integer(d)) },
		func() string {
			return "size(" + pick(r, r.text(d), r.integers(d), "self.map", "self.items", "self.data") + ")"
		},
		func() string { return pick(r, r.text(d), r.words(d)) + ".size()" },
		func() string { return r.integers(d) + "[" + r.integer(0) + "]" },
		func() string { return "self.map[" + pick(r, "'x'", "'a'", r.text(d)) + "]" },
		func() string { return "self.items[" + pick(r, "0", "1") + "].v" },
		func() string {
			return "int(" + pick(r, r.text(d), r.double(d), "self.when", "'12'", "'-0'", "'0x1'", "2u") + ")"
		},
		func() string {
			return r.text(d) + "." + pick(r, "indexOf", "lastIndexOf") + "(" + r.text(0) + pick(r, "", ", 1") + ")"
		},
		func() string {
			return r.integers(d) + "." + pick(r, "sum()", "min()", "max()", "indexOf(1)", "lastIndexOf(1)")
		},
		func() string { return r.words(d) + ".indexOf('a')" },
		func() string { return r.paren(r.boolean(d) + " ? " + r.integer(d) + " : " + r.integer(d)) },
		func() string {
			return "self.when." + pick(r, "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes", "getSeconds", "getMilliseconds") + "(" + pick(r, "", "", "'UTC'", "'+02:00'", "'-05:30'") + ")"
		},
		func() string {
			return "self.long." + pick(r, "getHours", "getMinutes", "getSeconds", "getMilliseconds") + "()"
		},
		func() string { return "self.?n.orValue(" + r.integer(d) + ")" },
		func() string { return "self.?inner.?deep.?n.orValue(5)" },
		func() string { return r.quantity() + ".compareTo(" + r.quantity() + ")" },
		func() string { return r.quantity() + ".asInteger()" },
		func() string { return "self.items.map(i, i.v).sum()" },
	)()
}

func (r *random) text(depth int) string {
	if depth == 0 {
		return pick(r, "''", "'a'", "'l'", "'hello'", "self.s", "self.t", "self.__namespace__", "self.a__dash__b", `"\u00dcn\u00ef"`, "r'\\d'", "'1'")
	}
	d := depth - 1
	return pick(r,
		func() string { return r.text(0) },
		func() string { return r.paren(r.text(d) + " + " + r.text(d)) },
		func() string { return r.text(d) + "." + pick(r, "lowerAscii()", "upperAscii()", "trim()") },
		func() string {
			return r.text(d) + ".substring(" + pick(r, "0", "1", "2") + pick(r, "", ", 3", ", 2") + ")"
		},
		func() string {
			return r.text(d) + ".replace(" + r.text(0) + ", " + r.text(0) + pick(r, "", ", 1", ", -1") + ")"
		},
		func() string { return r.text(d) + ".charAt(" + r.integer(0) + ")" },
		func() string { return r.words(d) + ".join(" + pick(r, "", "','", "''") + ")" },
		func() string { return r.words(d) + "[0]" },
		func() string {
			return "string(" + pick(r, r.integer(d), r.double(d), r.boolean(d), "self.when", "self.long", "self.data", "b'abc'", "3u") + ")"
		},
		func() string {
			return "'%s|%d|%.2f|%x'.format([" + r.text(d) + ", " + r.integer(d) + ", " + r.double(d) + ", " + r.integer(0) + "])"
		},
		func() string {
			return "'" + pick(r, "%s", "%d", "%e", "%f", "%.1f", "%b", "%o", "%x", "%X", "%%", "%s %s") + "'.format([" + pick(r, r.integer(d), r.text(d), r.double(d), r.integers(d), "self.map", "self.flag", "self.when", "self.long") + "])"
		},
		func() string { return r.text(d) + ".find('[a-l]+')" },
		func() string { return r.paren(r.boolean(d) + " ? " + r.text(d) + " : " + r.text(d)) },
		func() string { return "self.?s.orValue(" + r.text(d) + ")" },
		func() string { return "self.items[0].name" },
		func() string {
			return "url('https://a.b:80/p/q?x=1&y=2#f')." + pick(r, "getScheme()", "getHost()", "getHostname()", "getPort()", "getEscapedPath()")
		},
		func() string { return "strings.quote(" + r.text(d) + ")" },
	)()
}

func (r *random) double(depth int) string {
	if depth == 0 {
		return pick(r, "0.0", "1.5", "-2.0", "self.d", "1e100", "double(self.n)")
	}
	d := depth - 1
	return pick(r,
		func() string { return r.double(0) },
		func() string { return r.paren(r.double(d) + pick(r, " + ", " - ", " * ", " / ") + r.double(d)) },
		func() string {
			return "double(" + pick(r, r.integer(d), r.text(d), "'1e3'", "'NaN'", "'Infinity'") + ")"
		},
		func() string { return r.quantity() + ".asApproximateFloat()" },
	)()
}

func (r *random) integers(depth int) string {
	if depth == 0 {
		return pick(r, "[]", "[1]", "[1, 2, 3]", "self.list", "[2, 1]")
	}
	d := depth - 1
	return pick(r,
		func() string { return r.integers(0) },
		func() string { return r.paren(r.integers(d) + " + " + r.integers(d)) },
		func() string { return "[" + r.integer(d) + ", " + r.integer(d) + "]" },
		func() string { return r.integers(d) + ".filter(e, e" + r.comparison() + r.integer(d) + ")" },
		func() string { return r.integers(d) + ".map(e, e" + pick(r, " + 1", " * 2", " / "+r.integer(0)) + ")" },
		func() string { return r.integers(d) + ".map(e, e > 1, e * 10)" },
		func() string {
			return r.integers(d) + "." + pick(r, "sort()", "reverse()", "distinct()", "slice(0, 1)", "slice(1, 2)")
		},
		func() string { return "lists.range(" + pick(r, "0", "3", "self.n") + ")" },
		func() string { return "[" + r.integers(d) + ", " + r.integers(d) + "].flatten()" },
		func() string { return r.integers(d) + ".sortBy(e, -e)" },
		func() string { return r.integers(d) + ".transformList(i, e, i + e)" },
		func() string { return "self.items.map(i, i.v)" },
	)()
}

func (r *random) words(depth int) string {
	if depth == 0 {
		return pick(r, "['a']", "['b', 'a']", "self.names", "['a', 'b']")
	}
	d := depth - 1
	return pick(r,
		func() string { return r.words(0) },
		func() string { return r.paren("['x'] + " + r.words(d)) },
		func() string { return "[" + r.text(d) + ", " + r.text(d) + "]" },
		func() string {
			return r.text(d) + ".split(" + pick(r, "','", "''", "'l'") + pick(r, "", ", 2", ", 0", ", -1") + ")"
		},
		func() string { return r.text(d) + ".findAll('[a-z]'" + pick(r, "", ", 2") + ")" },
		func() string { return r.words(d) + ".filter(e, e" + r.comparison() + r.text(d) + ")" },
		func() string { return r.words(d) + "." + pick(r, "sort()", "reverse()", "distinct()") },
		func() string { return r.words(d) + ".map(e, e + " + r.text(d) + ")" },
		func() string { return "self.items.map(i, i.name)" },
	)()
}

// Values of other types.
func (r *random) other(depth int) string {
	d := depth - 1
	return pick(r,
		func() string { return "self.map" },
		func() string { return "{'a': " + r.integer(d) + ", 'b': " + r.integer(d) + "}" },
		func() string { return "{" + r.integer(0) + ": 'x', " + r.integer(0) + ": 'y'}" },
		func() string { return "self.items" },
		func() string {
			return "self.when" + pick(r, "", " + self.long", " - self.long", " - timestamp('2026-01-01T00:00:00Z')")
		},
		func() string { return "timestamp(" + pick(r, "'2026-01-01T00:00:00Z'", "1700000000", r.text(d)) + ")" },
		func() string { return "duration(" + pick(r, "'1h'", "'1.5s'", "'-2m'", "'90'", r.text(d)) + ")" },
		func() string { return "self.long" + pick(r, " + ", " - ") + "duration('1m')" },
		func() string { return "bytes(" + r.text(d) + ")" },
		func() string { return "self.data" },
		func() string { return "uint(" + r.integer(d) + ")" },
		func() string { return "3u" + pick(r, " + ", " - ", " * ", " / ", " % ") + pick(r, "2u", "0u", "4u") },
		func() string {
			return "dyn(" + r.integer(d) + ") == dyn(" + pick(r, r.double(d), r.text(d), "2u") + ")"
		},
		func() string { return "self.map.transformMap(k, v, v + 1)" },
		func() string {
			return "type(" + pick(r, r.integer(d), r.text(d), r.integers(d), "self.map", "self.when", "type(1)", "null") + ")"
		},
		func() string { return "null" },
		func() string { return "[dyn(" + r.integer(d) + "), 'x', 1.5, null, true]" },
		func() string { return "self.?s.optMap(x, x + '!').orValue('none')" },
		func() string { return r.integer(d) + r.comparison() + r.double(d) },
		func() string {
			return pick(r, "math.abs(1)", "cel.bind(v, 1, v)", "math.greatest(1, 2)", "base64.encode(b'a')", "'a'.reverse()", "self.s.size2()", "self.nope", "nope", "sets.x([1])", "lists.range('a')")
		},
		func() string { return r.text(d) + " + " + r.integer(d) },
	)()
}

func jsonOf(value any) ([]byte, error) { return []byte(text(value)), nil }

// A value with its type, alike on both sides of the comparison.
func render(value ref.Val) string {
	switch value := value.(type) {
	case celtypes.Bool:
		return fmt.Sprintf("%v", bool(value))
	case celtypes.Int:
		return fmt.Sprintf("%d", int64(value))
	case celtypes.Uint:
		return fmt.Sprintf("%du", uint64(value))
	case celtypes.Double:
		return "double " + strconv.FormatFloat(float64(value), 'e', -1, 64)
	case celtypes.String:
		return text(string(value))
	case celtypes.Bytes:
		return "bytes " + hex.EncodeToString([]byte(value))
	case celtypes.Null:
		return "null"
	case celtypes.Timestamp:
		return fmt.Sprintf("timestamp %d.%09d", value.Unix(), value.Nanosecond())
	case celtypes.Duration:
		return fmt.Sprintf("duration %d", value.Nanoseconds())
	case *celtypes.Type:
		return "type " + value.TypeName()
	case *celtypes.Optional:
		if value.HasValue() {
			return "optional " + render(value.GetValue())
		}
		return "optional none"
	case traits.Mapper:
		fields := []string{}
		for it := value.Iterator(); it.HasNext() == celtypes.True; {
			key := it.Next()
			fields = append(fields, render(key)+": "+render(value.Get(key)))
		}
		sort.Strings(fields)
		return "{" + strings.Join(fields, ", ") + "}"
	case traits.Lister:
		items := []string{}
		for it := value.Iterator(); it.HasNext() == celtypes.True; {
			items = append(items, render(it.Next()))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprintf("%s %v", value.Type().TypeName(), value.Value())
}
