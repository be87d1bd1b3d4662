// An identity provider for tests: node-oidc-provider with its own pages to sign in (any name, any password).
//   node provider.mjs PORT REDIRECT_URI POST_LOGOUT_REDIRECT_URI
// It prints "ready" when it serves. The groups of a person are what follows the plus sign of the name: ann+sre+staff.
import { createServer } from "node:http";
import { exportJWK, generateKeyPair } from "jose";
import { Provider } from "oidc-provider";

const [port, redirectUri, postLogoutRedirectUri] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const { privateKey } = await generateKeyPair("RS256", { extractable: true });

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "duly-console",
      client_secret: "a-secret-of-the-console",
      redirect_uris: [redirectUri],
      post_logout_redirect_uris: [postLogoutRedirectUri],
      grant_types: ["authorization_code", "refresh_token"],
    },
    {
      client_id: "duly-cli",
      application_type: "native",
      token_endpoint_auth_method: "none",
      redirect_uris: ["http://127.0.0.1/callback"],
      grant_types: ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
    },
  ],
  jwks: { keys: [{ ...(await exportJWK(privateKey)), alg: "RS256", use: "sig", kid: "first" }] },
  cookies: { keys: ["only for tests"] },
  claims: { openid: ["sub"], profile: ["groups"] },
  conformIdTokenClaims: false,
  findAccount: (_ctx, id) => ({
    accountId: id,
    claims: () => ({ sub: id.split("+")[0], groups: id.split("+").slice(1) }),
  }),
  features: { rpInitiatedLogout: { enabled: true }, deviceFlow: { enabled: true }, revocation: { enabled: true } },
  issueRefreshToken: async () => true,
  rotateRefreshToken: true,
  ttl: { IdToken: 3600, AccessToken: 3600, RefreshToken: 7200, Session: 7200, Grant: 7200, Interaction: 600 },
});
createServer(provider.callback()).listen(Number(port), "127.0.0.1", () => console.log("ready"));
