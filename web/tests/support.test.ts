import { describe, expect, it } from "vitest";
import document from "../../docs/reference/openapi.json";
import { LISTS } from "../src/lib/support";

interface Described {
  operationId: string;
  responses: Record<string, { content?: Record<string, { schema?: { properties?: { items?: unknown } } }> }>;
}

describe("the support bundle", () => {
  it("has every list of the API, as `forebay support bundle` does", () => {
    const lists = Object.entries(document.paths as Record<string, Record<string, unknown>>).flatMap(([path, methods]) => {
      const described = methods.get as Described | undefined;
      const isList = described?.responses["200"]?.content?.["application/json"]?.schema?.properties?.items !== undefined;
      return described && isList && !path.includes("{") ? [[described.operationId, path.replace("/api/v1/", "")]] : [];
    });
    const numbered = ["EventList", "AuditList"];
    expect(Object.fromEntries(lists.filter(([id]) => !numbered.includes(id ?? "")))).toEqual(LISTS);
    expect(lists.map(([id]) => id)).toEqual(expect.arrayContaining(numbered));
  });
});
