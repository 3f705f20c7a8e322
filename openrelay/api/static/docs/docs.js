// The page of the API. No validator: the only host that is ever asked is this one.
const place = document.getElementById("docs");
SwaggerUIBundle({
  domNode: place,
  url: place.dataset.schema,
  validatorUrl: null,
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  displayOperationId: true,
  displayRequestDuration: true,
  filter: true,
  tryItOutEnabled: false,
});
