// Swagger UI of /openapi.json. Nothing comes from elsewhere: no validator, no fonts.
"use strict";
document.documentElement.classList.toggle("dark-mode", matchMedia("(prefers-color-scheme: dark)").matches);
SwaggerUIBundle({url: "openapi.json", dom_id: "#api", deepLinking: true, validatorUrl: null, defaultModelsExpandDepth: -1});
